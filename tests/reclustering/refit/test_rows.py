"""Rows by number: folds of them, and counts of ids against looking through all rows."""

from collections import Counter

import numpy as np
import pytest
import torch

from cce import EmbeddingCollection
from cce.reclustering.refit.hooks import LookupHooks
from cce.reclustering.refit.rows import (
    ALL_ROWS,
    FetchedRows,
    Fold,
    Selection,
    blocks_of_rows,
    count_ids,
    cross_entropy,
)
from cce.schema import Batch


class Numbers:
    """Rows with one id of two features each, or with bags."""

    def __init__(self, num_rows: int, num_ids: int, *, bags: bool = False) -> None:
        rng = np.random.default_rng(num_rows)
        lengths = rng.integers(0, 4, (num_rows, 2)) if bags else np.ones((num_rows, 2), np.int64)
        self.ids = [[rng.integers(0, num_ids, length) for length in row] for row in lengths]
        self.bags = bags

    def __len__(self) -> int:
        return len(self.ids)

    def fetch(self, rows: np.ndarray) -> Batch:
        columns = [[self.ids[row][feature] for row in rows] for feature in range(2)]
        flat = torch.from_numpy(np.concatenate([ids for column in columns for ids in column]))
        lengths = torch.tensor([len(ids) for column in columns for ids in column])
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
        labels = torch.zeros(len(rows))
        dense = torch.zeros(len(rows), 0)
        if self.bags:
            return Batch(dense, flat, labels, offsets=offsets)
        return Batch(dense, flat.view(2, -1).T.contiguous(), labels)


def opened(rows: Numbers) -> tuple[FetchedRows, LookupHooks]:
    """The rows, and hooks on a collection that reads them."""
    model = torch.nn.Sequential(EmbeddingCollection({"a": 25, "b": 20}, 2, method="full", seed=0))
    return FetchedRows(model, rows, cross_entropy), LookupHooks(model, dict(model[0].tables.items()))


@pytest.mark.parametrize("bags", [False, True])
@pytest.mark.parametrize("fold", [ALL_ROWS, Fold(0, 2), Fold(2, 3)])
def test_ids_are_counted_in_the_rows_of_a_fold(bags, fold, monkeypatch):
    monkeypatch.setattr("cce.reclustering.refit.rows.READ_ROWS", 37)
    rows = Numbers(300, 20, bags=bags)
    found = count_ids(*opened(rows), {"a": 25, "b": 20}, Selection(fold))
    for feature, size in ((0, 25), (1, 20)):
        expected = Counter(name for row in range(300) if row in fold for name in set(rows.ids[row][feature].tolist()))
        assert found["ab"[feature]].tolist() == [expected[name] for name in range(size)]


def test_pieces_have_the_rows_of_a_fold_once():
    for fold in (ALL_ROWS, Fold(1, 3)):
        found = np.concatenate(list(Selection(fold).numbers(500, 37)))
        assert found.tolist() == fold.numbers(500).tolist() == [row for row in range(500) if row in fold]


def test_folds_share_out_the_rows_evenly():
    numbers = np.arange(30_000)
    masks = np.stack([Fold(part, 3).mask(numbers) for part in range(3)])
    assert (masks.sum(0) == 1).all()
    assert masks.sum(1) == pytest.approx(10_000, abs=400)
    halves = np.stack([Fold(part, 2).mask(numbers) for part in range(2)])
    assert abs((halves[0][:-1] == halves[0][1:]).mean() - 0.5) < 0.02  # neighbours are independent


@pytest.mark.parametrize("fold", [ALL_ROWS, Fold(2, 3)])
def test_each_row_of_a_fold_has_the_block_of_its_id(fold, monkeypatch):
    monkeypatch.setattr("cce.reclustering.refit.rows.READ_ROWS", 37)
    rows, blocks = Numbers(200, 12), np.arange(12, dtype=np.uint8) % 5
    found = blocks_of_rows(*opened(rows), "b", blocks, Selection(fold))
    expected = [blocks[rows.ids[row][1][0]] if row in fold else 255 for row in range(200)]
    assert found.tolist() == expected
    assert blocks_of_rows(*opened(Numbers(200, 12, bags=True)), "b", blocks, Selection(fold)) is None
