"""Compiled loops read and write nothing beyond the arrays that they are given."""

import pytest
import torch

import cce
from cce import compiled
from cce.clustering.backends.native import native_nearest
from helpers.fence import fence, fenced
from helpers.linear_tables import NUM_IDS, TABLES, plain, seeded

pytestmark = pytest.mark.skipif(not compiled.available, reason="compiled loops need numba")


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES.keys())
@pytest.mark.parametrize("num_ids", [NUM_IDS - 1, NUM_IDS])
def test_lookups_and_gradients_stay_within_tables(make, num_ids):
    table, ids = fence(make(num_ids)), fenced(torch.arange(num_ids))
    vectors = table(ids)
    assert torch.allclose(vectors, plain(table, ids), atol=1e-6)
    vectors.backward(fenced(torch.ones_like(vectors)))


@pytest.mark.parametrize("dim", [1, 4, 6, 16, 48])
@pytest.mark.parametrize("min_count", [1, 3])
def test_int8_rows_stay_within_records(dim, min_count):
    table = fence(cce.embeddings.CCEEmbedding(100, dim, min_count=min_count))
    optimizer = cce.optim.Adam(table, lr=1e-2)
    for ids in (torch.arange(99), torch.arange(100), torch.arange(100).repeat(3), torch.empty(0).long()):
        fence(table)
        vectors = table(fenced(ids))
        vectors.backward(fenced(torch.ones_like(vectors)))
        optimizer.step()
        optimizer.zero_grad()
    assert table.rows.num_rows == 101


@pytest.mark.parametrize("method", ["full", "cce"])
def test_bags_stay_within_ids_and_weights(method):
    tables = fence(cce.EmbeddingCollection({"a": 40, "b": 30}, 16, method=method, cap=100))
    if method == "cce":
        cce.optim.Adam(tables, lr=1e-2)
    ids, offsets = fenced(torch.arange(30).repeat(2)), fenced(torch.tensor([0, 0, 7, 30, 30, 58, 60]))
    for weights in (None, fenced(torch.rand(60, generator=seeded()))):
        vectors = tables(ids, offsets, weights)
        assert vectors.shape == (3, 2, 16)
        vectors.backward(fenced(torch.ones_like(vectors)))


@pytest.mark.parametrize("width", [1, 3, 4, 5, 17])
@pytest.mark.parametrize("num_points", [1, 15, 16, 17, 1000])
def test_searches_stay_within_points_and_centroids(width, num_points):
    points = fenced(torch.randn(num_points, width, generator=seeded()))
    centroids = fenced(torch.randn(7, width, generator=seeded(1)))
    assert torch.equal(native_nearest(points, centroids), torch.cdist(points, centroids).argmin(1))


def test_plain_vectors_that_stand_in_for_loops_keep_their_codebook(monkeypatch):
    """A backward pass whose forward pass was made while loops were compiled reads the codebook again."""
    monkeypatch.setattr("cce.kernels.dispatch.is_ready", lambda *_: False)
    table, ids = cce.embeddings.FullEmbedding(200_000, 16), torch.arange(0, 200_000, 7)
    weight = table.codebook.detach().clone().requires_grad_()
    vectors = torch.func.functional_call(table, {"codebook": weight * 2}, (ids,))  # its memory is given back here
    vectors.sum().backward()
    assert weight.grad.sum() == 2 * 16 * len(ids)
