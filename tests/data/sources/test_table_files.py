"""Files of a table: part files in folders, compressed files, names of columns."""

import gzip
import zipfile

import pyarrow as pa
import pytest

from cce.data.raw_files import find_inputs, read_names

TEXT = b"y,a\n1,u\n0,v\n"


def write_compressed(folder):
    (folder / "a.csv.gz").write_bytes(gzip.compress(TEXT))
    (folder / "a.csv.zst").write_bytes(pa.compress(TEXT, "zstd", asbytes=True))
    with zipfile.ZipFile(folder / "a.csv.zip", "w") as archive:
        archive.writestr("inside.csv", TEXT)


def test_every_compression_gives_the_same_text(tmp_path):
    write_compressed(tmp_path)
    inputs = find_inputs(tmp_path)
    assert len(inputs) == 3
    for input_ in inputs:
        assert list(input_.blocks(6)) == [(0, TEXT[:8]), (8, TEXT[8:])]
        assert not input_.is_plain
    assert read_names(inputs)[0] == ("y", "a")


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_a_damaged_file_is_named(tmp_path, ending):
    write_compressed(tmp_path)
    path = tmp_path / f"a.csv.{ending}"
    path.write_bytes(path.read_bytes()[:6] + b"\0" * 30)
    with pytest.raises(ValueError, match=rf"a\.csv\.{ending} (was cut short|must be a whole compressed file)"):
        read_names(find_inputs(path))


def test_part_files_below_a_folder_come_in_order_without_marks_of_other_programs(tmp_path):
    for name in ("day=2/part-0.csv", "day=1/part-1.csv", "day=1/part-0.csv", "_SUCCESS", ".part-0.csv.crc", "notes.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(TEXT)
    found = [str(each.path.relative_to(tmp_path)) for each in find_inputs(tmp_path)]
    assert found == ["day=1/part-0.csv", "day=1/part-1.csv", "day=2/part-0.csv"]


@pytest.mark.parametrize("names", [("one", "two"), ()])
def test_a_zip_must_hold_one_file(tmp_path, names):
    with zipfile.ZipFile(tmp_path / "a.csv.zip", "w") as archive:
        for name in names:
            archive.writestr(name, TEXT)
    with pytest.raises(ValueError, match=rf"must hold one file, got {len(names)}"):
        find_inputs(tmp_path / "a.csv.zip")


def test_files_of_two_kinds_are_rejected(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"y\n1\n")
    (tmp_path / "b.tsv").write_bytes(b"y\n1\n")
    with pytest.raises(ValueError, match=r"files must be of one kind, and .*b\.tsv is not of that of .*a\.csv"):
        read_names(find_inputs(tmp_path))
