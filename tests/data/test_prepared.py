"""A prepared data set: opened if it is whole, rejected by the name of the file if not."""

import re

import pytest

from cce.data import PreparedData, SyntheticConfig, prepare_synthetic


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
    loader = data.loader("test", batch_size=8, shuffle=False, seed=5, rank=1, world_size=2, drop_last=True)
    assert (loader.batch_size, loader.shuffle, loader.seed) == (8, False, 5)
    assert (loader.rank, loader.world_size, loader.drop_last) == (1, 2, True)


def test_a_missing_file_is_told_by_name(data):
    (data.path / "test.rows").unlink()
    with pytest.raises(FileNotFoundError, match=r"is not complete: test\.rows is missing"):
        PreparedData.open(data.path)


def test_a_file_that_lost_its_end_is_told_by_name(data):
    path = data.path / "train.rows"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    message = f"{path} must have {len(whole)} bytes, got {len(whole) - 1}: it was damaged."
    with pytest.raises(ValueError, match=re.escape(message)):
        PreparedData.open(data.path)


def test_verify_finds_a_changed_byte(data):
    data.verify()
    path = data.path / "train.rows"
    changed = bytearray(path.read_bytes())
    changed[5] ^= 1
    path.write_bytes(changed)
    with pytest.raises(ValueError, match=r"train\.rows must have the SHA-256 [0-9a-f]{64}, got "):
        PreparedData.open(data.path).verify()
