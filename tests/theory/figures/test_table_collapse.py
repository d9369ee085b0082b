"""Table collapse, small: entropies of four methods."""

import math

import pytest
import torch

from cce.theory.figures import FIGURES
from cce.theory.figures.table_collapse import QUICK, grouped_vectors


@pytest.fixture(scope="module")
def figure():
    return FIGURES["table-collapse"](quick=True)


def test_entropies_are_within_their_bounds(figure):
    h1, h2, _ = (line.y for line in figure.series)
    assert figure.ticks == ("CE", "CCE", "PQ", "circular")
    assert all(0 < value <= math.log(QUICK.num_rows) for value in h1)
    assert all(low <= value <= math.log(QUICK.num_embeddings) for low, value in zip(h1, h2, strict=True))


def test_circular_clustering_makes_columns_alike_and_cce_does_not(figure):
    _, (ce, cce, _, circular), _ = (line.y for line in figure.series)
    assert circular < cce - 0.3
    assert cce <= ce


def test_cce_learns_more_than_ce(figure):
    ce, cce, pq, _ = figure.series[2].y
    assert pq < cce < ce


def test_vectors_have_groups():
    vectors = grouped_vectors(QUICK, torch.Generator().manual_seed(0))
    assert vectors.shape == (QUICK.num_embeddings, QUICK.embedding_dim)
    nearest = torch.cdist(vectors, vectors).fill_diagonal_(math.inf).amin(dim=1)
    assert float(nearest.mean()) < 0.5 * float(torch.cdist(vectors, vectors).mean())
