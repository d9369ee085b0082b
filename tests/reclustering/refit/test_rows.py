"""The index of rows by id, against looking through all rows."""

from collections import Counter

import numpy as np
import pytest
import torch

from cce.reclustering.refit.rows import READ_ROWS, Fold, RowIndex, bags_of
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


@pytest.mark.slow
@pytest.mark.parametrize("bags", [False, True])
@pytest.mark.parametrize("feature", [0, 1])
@pytest.mark.parametrize("fold", [None, Fold(0, 2), Fold(2, 3)])
def test_it_has_the_rows_of_every_id(bags, feature, fold):
    rows = Numbers(300, 20, bags=bags)
    index = RowIndex.of(rows, feature, 25, fold=fold)
    for name in range(25):
        kept = [row for row in range(300) if fold is None or row in fold]
        expected = Counter(row for row in kept for found in rows.ids[row][feature] if found == name)
        numbers, bounds = index.rows_of(torch.tensor([name]))
        assert Counter(numbers.tolist()) == expected
        assert int(index.counts[name]) == bounds[-1] == sum(expected.values())


def test_blocks_of_reading_do_not_matter(monkeypatch):
    rows = Numbers(500, 9)
    whole = RowIndex.of(rows, 1, 9)
    monkeypatch.setattr("cce.reclustering.refit.rows.READ_ROWS", 37)
    pieces = RowIndex.of(rows, 1, 9)
    assert READ_ROWS > 500
    np.testing.assert_array_equal(whole.order, pieces.order)
    np.testing.assert_array_equal(whole.starts, pieces.starts)


def test_rows_of_several_ids_come_id_after_id():
    index = RowIndex.of(Numbers(200, 10), 0, 10)
    numbers, bounds = index.rows_of(torch.tensor([7, 2]))
    first, _ = index.rows_of(torch.tensor([7]))
    second, _ = index.rows_of(torch.tensor([2]))
    assert numbers[: bounds[1]].tolist() == first.tolist()
    assert numbers[bounds[1] :].tolist() == second.tolist()


@pytest.mark.parametrize("max_rows", [1, 30, 10_000])
def test_blocks_hold_every_id_once_and_few_rows(max_rows):
    index = RowIndex.of(Numbers(400, 30), 0, 40)
    ids = torch.arange(40)
    found = list(index.blocks(ids, max_rows))
    assert torch.equal(torch.cat(found), ids)
    for some in found:
        assert len(some) == 1 or int(index.counts[some].sum()) <= max_rows


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
