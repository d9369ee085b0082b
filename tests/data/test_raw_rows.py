"""New raw rows from files, read as those of a data set were."""

import gzip

import numpy as np
import pytest

from cce.data import raw_rows
from cce.data.preparation.job import Columns, Reading
from cce.data.raw_rows import RawRows
from helpers.raw_files import words_of

RATINGS = RawRows(
    Columns("rating", ("user", "film"), timestamp="t", user="user"),
    Reading(names=("user", "film", "rating", "t"), delimiter="::", threshold=4, drop_label=3),
    has_names=False,
)


def users(rows, given):
    return [user for block in rows.blocks(given) for user in words_of(block.words["user"])]


def test_lines_are_those_of_the_data_set_with_or_without_labels(tmp_path):
    (tmp_path / "a.dat").write_text("1::5::3::9\n2::6::5::9\n")
    (tmp_path / "b.dat").write_text("1::5::9\n2::6::9\n")
    (tmp_path / "c.csv").write_text("film,user\n5,1\n6,2\n")
    for name in ("a.dat", "b.dat", "c.csv"):
        assert users(RATINGS, tmp_path / name) == ["1", "2"]
    assert RATINGS.columns.used == ("user", "film")
    labelled = RawRows(RATINGS.of_data, RATINGS.reading, has_names=False, has_labels=True)
    assert users(labelled, tmp_path / "a.dat") == ["2"]  # ratings of 3 are left out of data sets
    with pytest.raises(ValueError, match=r"b\.dat: it must have a column 'rating'; it has user, film, t\.$"):
        users(labelled, tmp_path / "b.dat")


def test_files_come_in_blocks_and_lines_are_counted_over_all(tmp_path, monkeypatch):
    monkeypatch.setattr(raw_rows, "TEXT_BYTES", 16)
    rows = RawRows(Columns("y", ("user",), ("age",)), Reading(), has_names=True)
    lines = [f"u{index},{index}" for index in range(30)]
    (tmp_path / "a.csv").write_text("user,age\n" + "\n".join(lines))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    for name in ("a.csv", "a.csv.gz"):
        blocks = list(rows.blocks(tmp_path / name))
        assert len(blocks) > 5
        assert np.concatenate([block.numbers["age"] for block in blocks]).tolist() == list(range(30))
    (tmp_path / "a.csv").write_text("user,age\n" + "\n".join([*lines, "u,old"]))
    with pytest.raises(ValueError, match=r"a\.csv, row 31: age must be a number, got 'old'\.$"):
        list(rows.blocks(tmp_path / "a.csv"))


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_blank_line_is_malformed_as_it_is_when_preparing(tmp_path, ending):
    rows = RawRows(Columns("y", ("user",)), Reading())
    for names, row in ((("user", "film"), "a,b"), (("user",), "a")):
        for first in (0, 1, 3):
            lines = [",".join(names), *[row] * first, "", *[row] * (3 - first)]
            (tmp_path / "a.csv").write_bytes("".join(line + ending for line in lines).encode())
            message = rf"row {first + 1}: expected {len(names)} columns, got a blank line\.$"
            with pytest.raises(ValueError, match=message):
                users(rows, tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text('user\n""\na\n')
    assert users(rows, tmp_path / "a.csv") == [None, "a"]


@pytest.mark.parametrize("transform", ["log", "standard", "identity"])
def test_dense_values_lie_in_float32_or_are_missing_as_they_are_when_preparing(tmp_path, transform):
    reading = Reading(transforms=(("age", transform),), scales=(("age", 0.0, 1.0),))
    rows = RawRows(Columns("y", ("user",), ("age",)), reading)
    for text in ("inf", "-Infinity", "1e400", "1e39", "-1e39"):
        (tmp_path / "a.csv").write_text(f"user,age\na,1\nb,{text}\n")
        for given in (tmp_path / "a.csv", [{"user": "a", "age": 1.0}, {"user": "b", "age": float(text)}]):
            with pytest.raises(ValueError, match=r"row 2: age must be in \[-3\.4e\+38, 3\.4e\+38\], got "):
                list(rows.blocks(given))
    (tmp_path / "a.csv").write_text("user,age\na,\nb,nan\nc,3.4e38\n")
    (block,) = rows.blocks(tmp_path / "a.csv")
    assert np.isnan(block.numbers["age"]).tolist() == [True, True, False]
