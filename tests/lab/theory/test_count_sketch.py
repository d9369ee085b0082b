"""The paper's appendix "Hashing" on count sketches: they keep subspaces, and skewed data wants more hashes."""

import pytest
import torch

from cce_lab.theory.sparse import count_sketch

NUM_IDS, NUM_DRAWS = 500, 200


def sketched(vectors, num_rows, *, num_ones=1, signed=True):
    """`Hᵀ · vectors` of independent sketches, `(draws, num_rows, dim)`; each row of H has length 1."""
    generator, found = torch.Generator().manual_seed(0), []
    for _ in range(NUM_DRAWS):
        sketch = count_sketch(len(vectors), num_rows, num_ones=num_ones, generator=generator)
        weights = sketch.weights if signed else sketch.weights.abs()
        summed = vectors.new_zeros(num_rows, vectors.shape[1])
        for rows, values in zip(sketch.rows.T, weights.T, strict=True):
            summed.index_add_(0, rows, vectors * values.unsqueeze(1) / num_ones**0.5)
        found.append(summed)
    return torch.stack(found)


def subspace(kind, dim):
    """An orthonormal basis: of random vectors, of a few ids alone, or with the constant vector in it."""
    vectors = torch.randn(NUM_IDS, dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    if kind == "few ids":
        return torch.eye(NUM_IDS, dim, dtype=torch.float64)
    if kind == "constant":
        vectors[:, 0] = 1
    return torch.linalg.qr(vectors).Q


def distortions(basis, num_rows, **options):
    """How far squared lengths in the subspace are from 1, at most, for each sketch."""
    lengths = torch.linalg.svdvals(sketched(basis, num_rows, **options)).square()
    return (lengths - 1).abs().amax(1)


@pytest.mark.parametrize("kind", ["random", "few ids", "constant"])
def test_a_count_sketch_keeps_all_lengths_of_a_subspace(kind):
    """Within 1 ± ε but for a share δ of sketches, with (d² + d) / (δ ε²) rows (Nelson and Nguyên, 2013)."""
    dim, epsilon, delta = 4, 0.5, 0.1
    num_rows = round((dim**2 + dim) / (delta * epsilon**2))
    failed = (distortions(subspace(kind, dim), num_rows) > epsilon).double().mean()
    assert failed <= delta


def test_without_signs_there_is_a_blind_spot():
    """What all ids have in common grows by the size of a bucket: signs are not for the proof alone."""
    assert distortions(subspace("constant", 4), 100, signed=False).min() > 1
    assert distortions(subspace("constant", 4), 100).median() < 0.5


@pytest.mark.parametrize(("num_large", "gains"), [(2, True), (NUM_IDS, False)])
def test_more_hashes_make_large_errors_rarer_where_a_few_ids_are_all(num_large, gains):
    """The variance is the same: one hash is exact or all wrong, four are a little wrong more often."""
    vector = torch.zeros(NUM_IDS, 1, dtype=torch.float64)
    vector[:num_large] = num_large**-0.5
    errors = {ones: sketched(vector, 16, num_ones=ones).square().sum((1, 2)) - 1 for ones in (1, 4)}
    large = {ones: float((error.abs() > 0.9).double().mean()) for ones, error in errors.items()}
    assert (large[1] > 0.03 and large[4] < 0.5 * large[1]) == gains
    assert 0.5 < errors[4].var() / errors[1].var() < 2
