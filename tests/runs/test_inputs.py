"""What raw rows need: read from a data set, or from a pack."""

import shutil

import pytest

import cce
from cce.data import checksum
from cce.run_folder import RunFolder
from cce.runs import pack_run
from cce.runs.pack import DataReference, Pack
from helpers.files import small_files

pytestmark = pytest.mark.slow


@pytest.fixture
def schema(trained):
    return cce.load_run(trained).schema


def test_a_pack_has_the_inputs_of_its_data_set(trained, schema, tmp_path):
    data = trained.parent / "data"
    made = DataReference(RunFolder(trained), data, checksum(data / "manifest.json")).inputs(schema)
    packed = pack_run(trained, tmp_path / "one.ccez").inputs(schema)
    assert made.columns.label == "click"
    assert made.kind == "table"
    assert (made.kind, made.columns, made.reading) == (packed.kind, packed.columns, packed.reading)
    for name, vocabulary in made.vocabularies.items():
        ids = range(len(vocabulary) + 1)
        assert vocabulary.values(ids) == packed.vocabularies[name].values(ids)
        assert vocabulary.values([0]) == [None]


def test_a_damaged_vocabulary_of_the_data_set_is_told_by_its_file(trained, schema, tmp_path):
    data = shutil.copytree(trained.parent / "data", tmp_path / "data")
    path = data / "vocabulary" / "001.parquet"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    reference = DataReference(RunFolder(trained), data, checksum(data / "manifest.json"))
    message = r"001\.parquet must be as `cce prepare` wrote it, and it is missing or damaged"
    with pytest.raises(ValueError, match=message):
        reference.inputs(schema)
    path.unlink()
    with pytest.raises(ValueError, match=message):
        reference.inputs(schema)


def test_inputs_that_are_not_those_of_the_run_are_one_line(trained, schema, tmp_path):
    pack = pack_run(trained, tmp_path / "one.ccez")
    spans = pack.spans | {"inputs/001.safetensors": pack.spans["inputs/000.safetensors"]}
    with pytest.raises(ValueError, match=r"inputs must hold 51 ids of 'item', got \d+ of 'user'\.$"):
        Pack(pack.path, pack.manifest, spans).inputs(schema)
    del spans["inputs/001.safetensors"]
    with pytest.raises(ValueError, match="inputs must hold the vocabulary of 'item', got none: "):
        Pack(pack.path, pack.manifest, spans).inputs(schema)


def test_a_full_disk_leaves_no_pack(trained, tmp_path):
    with small_files(100), pytest.raises(OSError, match=r"safetensors could not be written: |File too large"):
        pack_run(trained, tmp_path / "one.ccez")
    assert list(tmp_path.iterdir()) == []
