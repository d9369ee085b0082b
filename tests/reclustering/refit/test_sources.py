"""Training rows: folds of them, rows by number, and batches that are cut into rows."""

import numpy as np
import pytest

from cce.reclustering.refit import sources
from cce.reclustering.refit.sources import ALL_ROWS, FetchedRows, Fold, Selection, cross_entropy
from helpers.ratings import Ratings, make_model


def test_pieces_have_the_rows_of_a_fold_and_block_once(monkeypatch):
    model, rows = make_model(), Ratings()
    monkeypatch.setattr(sources, "PASS_ROWS", 37)
    source = FetchedRows(model, rows, cross_entropy)
    blocks = (np.arange(len(rows)) % 3).astype(np.uint8)
    for fold in (ALL_ROWS, Fold(1, 3)):
        found = np.concatenate([piece.numbers for piece in source.pieces(Selection(fold))])
        assert found.tolist() == fold.numbers(len(rows)).tolist() == [n for n in range(len(rows)) if n in fold]
        found = [piece.numbers for piece in source.pieces(Selection(fold, blocks=blocks, block=1))]
        assert np.concatenate(found).tolist() == [n for n in range(1, len(rows), 3) if n in fold]


def test_folds_share_out_the_rows_evenly():
    numbers = np.arange(30_000)
    masks = np.stack([Fold(part, 3).mask(numbers) for part in range(3)])
    assert (masks.sum(0) == 1).all()
    assert masks.sum(1) == pytest.approx(10_000, abs=400)
    halves = np.stack([Fold(part, 2).mask(numbers) for part in range(2)])
    assert abs((halves[0][:-1] == halves[0][1:]).mean() - 0.5) < 0.02  # neighbours are independent
