"""Rows by number: folds of them, and counts of ids against looking through all rows."""

from collections import Counter

import numpy as np
import pytest
import torch

from cce.reclustering.refit.rows import ALL_ROWS, Fold, bags_of, blocks_of_rows, count_ids, pieces
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


@pytest.mark.parametrize("bags", [False, True])
@pytest.mark.parametrize("fold", [ALL_ROWS, Fold(0, 2), Fold(2, 3)])
def test_ids_are_counted_in_the_rows_of_a_fold(bags, fold, monkeypatch):
    monkeypatch.setattr("cce.reclustering.refit.rows.READ_ROWS", 37)
    rows = Numbers(300, 20, bags=bags)
    found = count_ids(rows, {0: 25, 1: 20}, fold)
    for feature, size in ((0, 25), (1, 20)):
        expected = Counter(name for row in range(300) if row in fold for name in rows.ids[row][feature])
        assert found[feature].tolist() == [expected[name] for name in range(size)]


def test_pieces_have_the_rows_of_a_fold_once():
    for fold in (ALL_ROWS, Fold(1, 3)):
        found = np.concatenate(list(pieces(500, fold, 37)))
        assert found.tolist() == fold.numbers(500).tolist() == [row for row in range(500) if row in fold]


def test_folds_share_out_the_rows_evenly():
    numbers = np.arange(30_000)
    masks = np.stack([Fold(part, 3).mask(numbers) for part in range(3)])
    assert (masks.sum(0) == 1).all()
    assert masks.sum(1) == pytest.approx(10_000, abs=400)
    halves = np.stack([Fold(part, 2).mask(numbers) for part in range(2)])
    assert abs((halves[0][:-1] == halves[0][1:]).mean() - 0.5) < 0.02  # neighbours are independent


def test_bags_of_a_feature():
    rows = Numbers(50, 9, bags=True)
    ids, lengths = bags_of(rows.fetch(np.arange(50)), 1)
    assert lengths.tolist() == [len(row[1]) for row in rows.ids]
    assert ids.tolist() == np.concatenate([row[1] for row in rows.ids]).tolist()


@pytest.mark.parametrize("fold", [ALL_ROWS, Fold(2, 3)])
def test_each_row_of_a_fold_has_the_block_of_its_id(fold, monkeypatch):
    monkeypatch.setattr("cce.reclustering.refit.rows.READ_ROWS", 37)
    rows, blocks = Numbers(200, 12), np.arange(12, dtype=np.uint8) % 5
    found = blocks_of_rows(rows, 1, blocks, fold)
    expected = [blocks[rows.ids[row][1][0]] if row in fold else 255 for row in range(200)]
    assert found.tolist() == expected
    assert blocks_of_rows(Numbers(200, 12, bags=True), 1, blocks, fold) is None
