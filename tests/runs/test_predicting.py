"""Probabilities, block by block, and files of them."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from cce.runs.evaluating import predict_batches, write_predictions
from cce.schema import Batch


class Sum(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, batch):
        return self.scale * batch.dense.sum(1)


def batches(*values):
    for value in values:
        dense = torch.tensor(value).reshape(-1, 1)
        yield Batch(dense, torch.zeros(len(dense), 0, dtype=torch.int64), torch.full((len(dense),), math.nan))


def test_logits_become_probabilities_one_batch_at_a_time():
    given = batches([0.0, 2.0], [-1.0])
    found = predict_batches(Sum(), given, progress=False)
    assert next(found).tolist() == pytest.approx([0.5, 1 / (1 + math.exp(-2))])
    assert next(given).dense.tolist() == [[-1.0]]  # nobody has asked for it yet


def test_logits_that_are_not_finite_are_rejected():
    with pytest.raises(ValueError, match=r"^logits must be finite, got NaN or infinity in rows 2 to 3\.$"):
        list(predict_batches(Sum(), batches([0.0], [math.inf, 1.0]), progress=False))


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_text_holds_every_bit(ending, tmp_path):
    blocks = [np.random.default_rng(0).random(50, np.float32), np.zeros(0, np.float32), np.ones(2, np.float32)]
    assert write_predictions(blocks, tmp_path / f"a.{ending}") == 52
    lines = (tmp_path / f"a.{ending}").read_text().splitlines()
    assert np.array_equal(np.array(lines[1:], np.float32), np.concatenate(blocks))


def test_no_rows_are_a_file_as_well(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert write_predictions([], tmp_path / "a.parquet") == 0
    assert parquet.read_table(tmp_path / "a.parquet").schema.names == ["probability"]


def test_an_error_on_the_way_leaves_the_old_file(tmp_path):
    def blocks():
        yield np.zeros(3, np.float32)
        raise ValueError("row 4")

    for name in ("a.csv", "a.parquet"):
        (tmp_path / name).write_text("old")
        with pytest.raises(ValueError, match="row 4"):
            write_predictions(blocks(), tmp_path / name)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old", "old"]
