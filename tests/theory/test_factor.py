"""Products with a sparse H are those of the matrix it stands for."""

import pytest
import torch

from cce.theory import SparseFactor
from cce.theory.factor import ones_at
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


def test_gram(factor):
    torch.testing.assert_close(factor.gram(), dense_matrix(factor).T @ dense_matrix(factor))


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
