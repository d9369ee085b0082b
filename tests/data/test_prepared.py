"""A prepared data set: opened if it is whole, rejected by the name of the file if not."""

import pytest

from cce.cli import main
from cce.data import PreparedData, SyntheticConfig, prepare_synthetic
from helpers.raw_files import table_with_everything


@pytest.fixture
def data(tmp_path):
    prepare_synthetic(tmp_path / "x", SyntheticConfig(num_rows=200, vocabulary_sizes=(20, 5)), progress=False)
    return PreparedData.open(str(tmp_path / "x"))


def test_it_knows_its_splits_and_rows(data):
    assert data.splits == ("train", "validation", "test")
    assert [data.num_rows(split) for split in data.splits] == [160, 20, 20]
    assert data.schema.vocabulary_sizes == {"c0": 21, "c1": 6}
    assert len(data.rows("test")) == 20
    assert len(data.loader("train", batch_size=50)) == 4


def test_an_unknown_split_is_rejected_with_the_right_ones(data):
    for method in (data.num_rows, data.rows, lambda split: data.loader(split, batch_size=2)):
        with pytest.raises(ValueError, match="split must be one of train, validation, test; got 'dev'"):
            method("dev")


def test_options_reach_the_loader(data):
    loader = data.loader("test", batch_size=8, shuffle=False, seed=5, rank=1, world_size=2)
    assert (loader.batch_size, loader.shuffle, loader.seed) == (8, False, 5)
    assert (loader.rank, loader.world_size) == (1, 2)


def changed_byte(path, index=5):
    content = bytearray(path.read_bytes())
    content[index] ^= 1
    path.write_bytes(content)


def test_rows_are_verified_once_before_they_are_first_used(data):
    changed_byte(data.path / "train.rows")
    again = PreparedData.open(data.path)
    for use in (again.rows, lambda split: again.loader(split, batch_size=2)):
        with pytest.raises(ValueError, match=r"train\.rows must have the SHA-256 .*: it was damaged or changed\.$"):
            use("train")
    assert len(again.rows("test")) == 20
    changed_byte(data.path / "test.rows")
    assert len(again.rows("test")) == 20  # it was right when it was first used
    assert len(PreparedData.open(data.path, verify=False).rows("train")) == 160


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vocabulary/000.parquet", "test.rows", "train.1.values"])
def test_training_verifies_every_file_first(tmp_path, name, capsys):
    folder = table_with_everything(tmp_path)
    changed_byte(folder / name, -1)
    words = ["train", str(folder), "--out", str(tmp_path / "run"), "--method", "hash", "--cap", "64", "--epochs", "1"]
    assert main(words) == 2
    assert f"{name} must have the SHA-256" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
