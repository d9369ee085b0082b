"""Synthetic data sets on disk: rows of the planted clusters, and the oracle's score in the manifest."""

import math
from dataclasses import replace

import pytest
import torch

from cce.data import PreparedData, SyntheticConfig, prepare_synthetic
from cce.data import synthetic as module

CONFIG = SyntheticConfig(num_rows=5000, vocabulary_sizes=(300, 40, 7), num_informative=2, num_dense=2, seed=4)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    out = tmp_path_factory.mktemp("planted") / "x"
    prepare_synthetic(out, CONFIG, progress=False)
    return PreparedData.open(out)


def whole(data, split):
    return next(iter(data.loader(split, batch_size=data.num_rows(split), shuffle=False)))


@pytest.mark.slow
def test_ids_begin_at_one_and_stay_in_the_vocabulary(data):
    batch = whole(data, "train")
    assert (batch.ids.shape, batch.dense.shape) == ((4000, 3), (4000, 2))
    for column, feature in zip(batch.ids.unbind(1), data.schema.features, strict=True):
        assert (int(column.min()), int(column.max()) < feature.num_embeddings) == (1, True)
    assert [feature.num_embeddings for feature in data.schema.features] == [301, 41, 8]


def test_the_oracles_score_is_that_of_the_true_probabilities(data):
    clicks = CONFIG.clicks()
    for split in data.splits:
        batch = whole(data, split)
        assert data.manifest["oracle_bce_by_split"][split] == pytest.approx(
            oracle(clicks, batch, torch.ones(len(batch.ids))), rel=1e-5
        )
    assert data.manifest["oracle_bce"] == data.manifest["oracle_bce_by_split"]["test"] < math.log(2)


def oracle(clicks, batch, times):
    logits = clicks._logits(batch.ids - 1, times) + (batch.dense @ clicks.dense_weights).double()
    return float(torch.nn.functional.binary_cross_entropy_with_logits(logits, batch.labels.double()))


def test_with_drift_training_rows_pass_in_time_and_the_others_are_of_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ROWS", 1000)  # time goes on from block to block
    config = replace(CONFIG, drift=1.0)
    prepare_synthetic(tmp_path / "x", config, progress=False)
    data, clicks = PreparedData.open(tmp_path / "x"), config.clicks()
    told = data.manifest["oracle_bce_by_split"]
    times = {"train": torch.arange(4000) / 4000, "validation": torch.ones(500), "test": torch.ones(500)}
    for split, passing in times.items():
        batch = whole(data, split)
        assert told[split] == pytest.approx(oracle(clicks, batch, passing.double()), rel=1e-5)
        assert told[split] < oracle(clicks, batch, 1 - passing.double()) - 0.1  # time does not go backwards


def test_splits_have_rows_of_their_own(data):
    train, test = whole(data, "train"), whole(data, "test")
    assert not torch.equal(train.dense[:500], test.dense)


def test_blocks_do_not_repeat_one_another(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ROWS", 1000)
    prepare_synthetic(tmp_path / "x", CONFIG, progress=False)
    dense = whole(PreparedData.open(tmp_path / "x"), "train").dense
    assert len(dense.unique(dim=0)) == 4000


def test_the_same_seed_gives_the_same_files(tmp_path, data):
    same = prepare_synthetic(tmp_path / "x", CONFIG, progress=False)
    other = prepare_synthetic(tmp_path / "y", SyntheticConfig(num_rows=5000, seed=5), progress=False)
    assert same["files"] == data.manifest["files"]
    assert other["files"] != same["files"]


def test_a_failure_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("the disk is gone")

    monkeypatch.setattr(module, "write_at", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        prepare_synthetic(tmp_path / "x", CONFIG, progress=False)
    assert list(tmp_path.iterdir()) == []
