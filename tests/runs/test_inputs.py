"""What raw rows need, made of a data set once and read from the folder of the run."""

import json
import os
import shutil

import pytest

import cce
from cce.data import checksum
from cce.runs.inputs import DataReference, FolderFiles, find_inputs, read_inputs
from helpers.files import small_files

pytestmark = pytest.mark.slow


@pytest.fixture
def schema(trained):
    return cce.load_run(trained).schema


@pytest.fixture
def reference(trained, tmp_path):
    data = trained.parent / "data"
    (tmp_path / "run").mkdir()
    return DataReference(tmp_path / "run", data, checksum(data / "manifest.json"))


def test_inputs_are_made_once(reference, schema):
    found = find_inputs(reference, schema)
    assert sorted(os.listdir(reference.folder)) == ["inputs"]
    assert found.columns.label == "click"
    assert found.has_names
    assert found.vocabularies["item"].values([0])[0] is None
    before = (reference.folder / "inputs" / "000.safetensors").stat().st_mtime_ns
    find_inputs(reference, schema)
    assert (reference.folder / "inputs" / "000.safetensors").stat().st_mtime_ns == before


def test_inputs_of_another_data_set_are_made_again(reference, schema):
    find_inputs(reference, schema)
    path = reference.folder / "inputs" / "inputs.json"
    path.write_text(path.read_text().replace(reference.checksum, "0" * 64))
    find_inputs(reference, schema)
    assert json.loads(path.read_text())["data"] == reference.checksum


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_left_alone(reference, schema):
    reference.folder.chmod(0o500)
    assert len(find_inputs(reference, schema).vocabularies) == 3
    assert os.listdir(reference.folder) == []


def test_a_folder_that_is_not_there_is_not_made(reference, schema, tmp_path):
    elsewhere = DataReference(tmp_path / "none" / "run", reference.data, reference.checksum)
    found = find_inputs(elsewhere, schema)
    assert found.vocabularies["item"].find(["1003"])[0] > 0
    assert not (tmp_path / "none").exists()
    folder = found.files.folder
    assert folder.is_dir()
    del found
    assert not folder.exists()


def test_a_full_disk_leaves_nothing_half_written(reference, schema):
    with small_files(100), pytest.raises(OSError, match=r"safetensors could not be written: "):
        find_inputs(reference, schema)
    assert os.listdir(reference.folder) == []


def test_a_flipped_byte_of_a_vocabulary_is_told_by_its_file(reference, schema):
    find_inputs(reference, schema)
    path = reference.folder / "inputs" / "001.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"inputs/001\.safetensors must be as it was written, and it is damaged"):
        find_inputs(reference, schema)


def test_damage_is_one_line(reference, schema, tmp_path):
    find_inputs(reference, schema)
    folder = reference.folder / "inputs"
    shutil.copyfile(folder / "000.safetensors", folder / "001.safetensors")
    with pytest.raises(ValueError, match=r"inputs must hold 50 values of 'item', got \d+ of 'user'\.$"):
        read_inputs(FolderFiles(folder), schema, folder)
    (folder / "001.safetensors").unlink()
    with pytest.raises(ValueError, match="inputs must hold the vocabulary of 'item', got none: "):
        read_inputs(FolderFiles(folder), schema, folder)
    for content, message in (("[]", "and it is damaged"), ('{"format": 1, "kind": ""}', "must be 2, got 1")):
        (folder / "inputs.json").write_text(content)
        with pytest.raises(ValueError, match=message):
            read_inputs(FolderFiles(folder), schema, folder)
    data = shutil.copytree(reference.data, tmp_path / "data")
    (data / "vocabulary" / "001.parquet").write_bytes(b"")
    (folder / "inputs.json").unlink()
    damaged = DataReference(reference.folder, data, reference.checksum)
    with pytest.raises(
        ValueError, match=r"001\.parquet must be as `cce prepare` wrote it, and it is missing or damaged"
    ):
        find_inputs(damaged, schema)
