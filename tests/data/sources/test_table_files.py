"""Files of a table: part files in folders, compressed files, names of columns."""

import gzip

import pytest

from cce.data.raw_files import find_inputs, read_names

TEXT = b"y,a\n1,u\n0,v\n"


def test_compression_gives_the_same_text(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(TEXT))
    (input_,) = find_inputs(tmp_path)
    assert list(input_.blocks(6)) == [(0, TEXT[:8]), (8, TEXT[8:])]
    assert not input_.is_plain
    assert read_names([input_])[0] == ("y", "a")


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(TEXT)[:6] + b"\0" * 30)
    with pytest.raises(ValueError, match=r"a\.csv\.gz (was cut short|must be a whole compressed file)"):
        read_names(find_inputs(path))


def test_part_files_below_a_folder_come_in_order_without_marks_of_other_programs(tmp_path):
    for name in ("day=2/part-0.csv", "day=1/part-1.csv", "day=1/part-0.csv", "_SUCCESS", ".part-0.csv.crc", "notes.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(TEXT)
    found = [str(each.path.relative_to(tmp_path)) for each in find_inputs(tmp_path)]
    assert found == ["day=1/part-0.csv", "day=1/part-1.csv", "day=2/part-0.csv"]


def test_files_of_two_kinds_are_rejected(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"y\n1\n")
    (tmp_path / "b.tsv").write_bytes(b"y\n1\n")
    with pytest.raises(ValueError, match=r"files must be of one kind, and .*b\.tsv is not of that of .*a\.csv"):
        read_names(find_inputs(tmp_path))
