"""Quantizers find planted clusters, point at the nearest rows, and say what they are told wrong."""

import dataclasses
import itertools

import pytest
import torch

from cce.clustering import ClusterSettings, ProductQuantizer, ResidualQuantizer, Sample, draw_sample, encode_all
from cce_lab.variants import CircularQuantizer
from helpers.draws import seeded

SPREAD = ClusterSettings(init="k-means++", backend="torch")  # backends are compared in their own tests
PLAIN = ClusterSettings(backend="torch")


def planted(num_vectors=300, num_columns=3, num_rows=5, width=2, seed=0):
    """Vectors made of exact copies of a few rows per column, which row, and the rows."""
    rows = torch.randn(num_columns, num_rows, width, generator=seeded(seed)) * 10
    labels = torch.randint(0, num_rows, (num_vectors, num_columns), generator=seeded(seed + 1))
    vectors = torch.cat([rows[column][labels[:, column]] for column in range(num_columns)], dim=1)
    return vectors, labels, rows


def decode(quantizer, rows, *, side_by_side):
    pieces = [codebook[rows[:, column]] for column, codebook in enumerate(quantizer.codebooks)]
    return torch.cat(pieces, dim=1) if side_by_side else torch.stack(pieces).sum(0)


def same_partition(first, second):
    """Whether two labellings group the same things together."""
    return (
        len(set(zip(first.tolist(), second.tolist(), strict=True)))
        == len(set(first.tolist()))
        == len(set(second.tolist()))
    )


def brute_force(points, centroids):
    distances = (points.double()[:, None] - centroids.double()[None]).square().sum(-1)
    return distances.argmin(1)


def fitted(kind, vectors, num_columns, num_rows, *, weights=None, settings=SPREAD, seed=7):
    quantizer = kind(num_columns, num_rows, settings)
    sample = Sample(vectors.__getitem__, torch.arange(len(vectors)), vectors.shape[1], weights)
    quantizer.fit(sample, seeded(seed))
    return quantizer


@pytest.mark.parametrize("num_columns", [1, 3])
def test_a_product_quantizer_finds_planted_clusters_exactly(num_columns):
    vectors, labels, rows = planted(num_columns=num_columns)
    quantizer = fitted(ProductQuantizer, vectors, num_columns, 5)
    found = quantizer.encode(vectors)
    assert (found.shape, found.dtype) == ((300, num_columns), torch.int64)
    assert all(same_partition(found[:, column], labels[:, column]) for column in range(num_columns))
    assert torch.allclose(decode(quantizer, found, side_by_side=True), vectors)
    for ours, theirs in zip(quantizer.codebooks, rows, strict=True):
        assert torch.allclose(ours[ours[:, 0].argsort()], theirs[theirs[:, 0].argsort()])
    assert quantizer.inertias == pytest.approx([0.0] * num_columns, abs=1e-6)


def test_a_product_quantizer_points_at_the_nearest_row_of_each_column():
    vectors, others = (torch.randn(200, 6, generator=seeded(seed)) for seed in (0, 1))
    quantizer = fitted(ProductQuantizer, vectors, 3, 8, settings=ClusterSettings(max_iter=5, backend="torch"))
    pieces = zip(others.chunk(3, dim=1), quantizer.codebooks, strict=True)
    assert torch.equal(quantizer.encode(others), torch.stack([brute_force(p, c) for p, c in pieces], dim=1))


def test_a_residual_quantizer_points_at_the_nearest_row_to_what_is_left():
    vectors, others = (torch.randn(200, 4, generator=seeded(seed)) for seed in (0, 1))
    quantizer = fitted(ResidualQuantizer, vectors, 3, 8, settings=ClusterSettings(max_iter=5, backend="torch"))
    found, left = quantizer.encode(others), others
    for column, codebook in enumerate(quantizer.codebooks):
        nearest = brute_force(left, codebook)
        assert torch.equal(found[:, column], nearest)
        left = left - codebook[nearest]


def test_a_residual_quantizer_comes_nearer_with_every_level():
    vectors = torch.randn(500, 4, generator=seeded())
    errors = []
    for num_levels in (1, 2, 3, 4):
        quantizer = fitted(ResidualQuantizer, vectors, num_levels, 8)
        assert quantizer.codebooks.shape == (num_levels, 8, 4)
        decoded = decode(quantizer, quantizer.encode(vectors), side_by_side=False)
        errors.append((vectors - decoded).square().sum().item())
    assert all(later < 0.8 * earlier for earlier, later in itertools.pairwise(errors))


def test_a_residual_quantizer_finds_planted_sums_exactly():
    coarse = 1000.0 * torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    fine = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [2.0, -2.0], [-2.0, 2.0]])  # of mean zero
    vectors = (coarse[:, None] + fine[None]).reshape(16, 2).repeat(10, 1)
    quantizer = fitted(ResidualQuantizer, vectors, 2, 4)
    assert sorted(quantizer.codebooks[0].tolist()) == sorted(coarse.tolist())
    assert sorted(quantizer.codebooks[1].tolist()) == sorted(fine.tolist())
    assert torch.equal(decode(quantizer, quantizer.encode(vectors), side_by_side=False), vectors)
    assert quantizer.inertias == (160 * fine.square().sum(1).mean().item(), 0.0)


def test_a_circular_quantizer_groups_each_column_by_the_others():
    vectors, labels, rows = planted(num_columns=2)
    quantizer = fitted(CircularQuantizer, vectors, 2, 5)
    found = quantizer.encode(vectors)
    assert same_partition(found[:, 0], labels[:, 1])
    assert same_partition(found[:, 1], labels[:, 0])
    assert not same_partition(found[:, 0], labels[:, 0])
    first_pieces = rows[0][labels[:, 0]]
    for row in range(5):
        mean = first_pieces[found[:, 0] == row].double().mean(0).float()
        assert torch.allclose(quantizer.codebooks[0, row], mean)


KINDS = [ProductQuantizer, ResidualQuantizer]


@pytest.mark.parametrize("kind", KINDS)
def test_more_rows_than_vectors_give_finite_codebooks_and_rows_in_range(kind):
    vectors = torch.randn(3, 4, generator=seeded())
    quantizer = fitted(kind, vectors, 2, 10, settings=PLAIN)
    found = quantizer.encode(vectors)
    assert quantizer.codebooks.isfinite().all()
    assert quantizer.codebooks.shape[:2] == (2, 10)
    assert found.min() >= 0
    assert found.max() < 10


@pytest.mark.parametrize("kind", [ProductQuantizer, ResidualQuantizer])
def test_equal_vectors_are_given_back(kind):
    vectors = torch.full((20, 4), 3.0)
    quantizer = fitted(kind, vectors, 2, 4)
    decoded = decode(quantizer, quantizer.encode(vectors), side_by_side=kind is ProductQuantizer)
    assert torch.equal(decoded, vectors)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_generators_fit_equal_codebooks_and_leave_the_vectors_alone(kind):
    vectors = torch.randn(200, 4, generator=seeded())
    before = vectors.clone()
    first, second, third = (fitted(kind, vectors, 2, 6, settings=PLAIN, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.codebooks, second.codebooks)
    assert not torch.equal(first.codebooks, third.codebooks)
    assert torch.equal(vectors, before)


@pytest.mark.parametrize("kind", [ProductQuantizer, ResidualQuantizer])
def test_a_vector_of_weight_two_counts_as_two(kind):
    vectors = torch.randn(60, 4, generator=seeded())
    weights = torch.tensor([1.0, 2.0, 3.0]).repeat(20)
    start = ClusterSettings(max_iter=1, backend="torch")
    weighted = fitted(kind, vectors, 1, 1, weights=weights, settings=start)
    repeated = fitted(kind, vectors.repeat_interleave(weights.long(), dim=0), 1, 1, settings=start)
    assert torch.allclose(weighted.codebooks, repeated.codebooks, atol=1e-6)


@pytest.mark.parametrize("num_ids", [5, 39, 40, 41, 10_000])
def test_a_sample_is_of_different_ids_and_of_no_more_than_asked_for(num_ids):
    settings = ClusterSettings(points_per_row=10)
    ids, weights = draw_sample(num_ids, 4, settings, counts=torch.ones(num_ids), generator=seeded())
    assert len(ids) == len(set(ids.tolist())) == min(num_ids, 40)
    assert ids.min() >= 0
    assert ids.max() < num_ids
    assert weights is None


@pytest.mark.slow
@pytest.mark.parametrize("block_size", [1, 7, 300, 1000])
def test_the_whole_vocabulary_is_encoded_block_by_block_into_the_narrowest_pointers(block_size):
    vectors, labels, _ = planted()
    quantizer = fitted(ProductQuantizer, vectors, 3, 5)
    quantizer.settings = dataclasses.replace(SPREAD, block_size=block_size)
    pointers = encode_all(quantizer, vectors.__getitem__, len(vectors), vectors.shape[1])
    assert pointers.bits == 3
    rows = pointers.read(torch.arange(len(vectors)))
    assert torch.equal(rows, quantizer.encode(vectors))
    assert all(same_partition(rows[:, column], labels[:, column]) for column in range(3))
