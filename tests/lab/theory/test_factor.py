"""Products with a sparse H are those of the matrix it stands for."""

import pytest
import torch

from cce_lab.theory import SparseFactor, count_sketch
from cce_lab.theory.sparse import ones_at
from helpers.draws import seeded
from helpers.theory import dense_matrix, normal


@pytest.fixture
def factor():
    rows = torch.tensor([[0, 2], [1, 1], [3, 0], [2, 3], [0, 0]])  # two of them at one place
    return SparseFactor(rows, normal(5, 2, seed=3), 4)


def test_times_a_codebook(factor):
    codebook = normal(4, 3)
    torch.testing.assert_close(factor.times(codebook), dense_matrix(factor) @ codebook)


def test_after_x(factor):
    x = normal(6, 5)
    torch.testing.assert_close(factor.after(x), x @ dense_matrix(factor))


def test_beside(factor):
    other = ones_at(torch.tensor([[1], [0], [1], [2], [2]]), 3)
    both = factor.beside(other)
    assert both.num_rows == 7
    torch.testing.assert_close(dense_matrix(both), torch.cat([dense_matrix(factor), dense_matrix(other)], dim=1))


def test_no_product_is_as_large_as_the_matrix():
    """100,000 ids and 100,000 columns would be 80 GB as a matrix."""
    num = 100_000
    factor = ones_at(torch.arange(num).flip(0).unsqueeze(1), num)
    assert torch.equal(
        factor.times(torch.arange(num).double().unsqueeze(1)).squeeze(1), torch.arange(num).flip(0).double()
    )
    assert torch.equal(
        factor.after(torch.arange(num).double().unsqueeze(0)).squeeze(0), torch.arange(num).flip(0).double()
    )


@pytest.mark.parametrize("num_ones", [1, 2, 4])
def test_every_row_has_a_sign_in_each_segment(num_ones):
    sketch = count_sketch(500, 20, num_ones=num_ones, generator=seeded())
    matrix = dense_matrix(sketch)
    assert sketch.num_rows == 20
    segments = matrix.view(500, num_ones, 20 // num_ones)
    assert torch.equal(segments.abs().sum(dim=2), torch.ones(500, num_ones, dtype=torch.float64))
    assert torch.equal(segments.abs().amax(dim=2), torch.ones(500, num_ones, dtype=torch.float64))


def test_rows_and_signs_are_spread_and_independent():
    sketch = count_sketch(20_000, 10, generator=seeded())
    signs = sketch.weights[:, 0]
    assert abs(float(signs.mean())) < 0.03
    counts = torch.bincount(sketch.rows[:, 0], minlength=10)
    assert int(counts.min()) > 1800
    assert int(counts.max()) < 2200
    for row in range(10):
        assert abs(float(signs[sketch.rows[:, 0] == row].mean())) < 0.1


@pytest.mark.slow
def test_norms_are_kept_on_average():
    vector = normal(1, 300)
    squares = [
        float(count_sketch(300, 100, generator=seeded(seed)).after(vector).square().sum()) for seed in range(200)
    ]
    assert sum(squares) / len(squares) == pytest.approx(float(vector.square().sum()), rel=0.05)
