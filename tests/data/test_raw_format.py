"""What a file of raw rows is, by its name and by its first line."""

import pytest

from cce.data.preparation.job import Columns, Reading
from cce.data.raw_files import check_columns, find_format
from cce.data.raw_rows import RawRows

OF_DATA = Reading(names=("y", "a", "b"), delimiter=";")


def test_formats_are_known_by_ending():
    assert [find_format(name) for name in ("a.csv", "b.txt.gz", "c.pq")] == ["csv", "tsv", "parquet"]
    assert find_format("a.dat", default="tsv") == "tsv"
    with pytest.raises(ValueError, match=r"^a\.dat must end in \.csv, \.tsv, \.txt, \.parquet, \.pq \(or with "):
        find_format("a.dat")


def read(line, *, has_names):
    return RawRows(Columns("y", ("a", "b")), OF_DATA, has_names=has_names)._text_reading(line, ",")


def test_the_first_line_names_columns_if_it_has_those_that_are_needed():
    for has_names in (True, False):
        found = read(b'\xef\xbb\xbfb,"c",a\r', has_names=has_names)
        assert (found.names, found.delimiter, found.has_header, found.quoted) == (("b", "c", "a"), ",", True, True)


def test_lines_without_names_are_like_those_of_the_data_set_with_or_without_a_label():
    assert read(b"1;x;y", has_names=False) == OF_DATA
    found = read(b"x;y", has_names=False)
    assert (found.names, found.delimiter, found.has_header) == (("a", "b"), ";", False)
    message = "it must have a first line with the names a, b, or lines of 3 columns, or 2 without a label, got 1"
    with pytest.raises(ValueError, match=message):
        read(b"x,y", has_names=False)


def test_columns_that_are_missing_or_twice_are_rejected():
    with pytest.raises(ValueError, match=r"^it must have a column 'b'; it has a, x\.$"):
        read(b"a,x", has_names=True)
    with pytest.raises(ValueError, match=r"^rows must have one column 'a', got 2\.$"):
        check_columns("rows", ["a"], ["a", "b", "a"])
    with pytest.raises(ValueError, match=r"^its first line must be UTF-8, got the byte 0xff\.$"):
        read(b"a,\xff", has_names=True)
    with pytest.raises(ValueError, match="rows must have a column 'a'; it has none"):
        check_columns("rows", ["a"], [])
