"""Codes in the metric of the loss, against trying everything."""

from itertools import product

import pytest
import torch

from cce.reclustering.refit import coding
from cce.reclustering.refit.blocks import diagonal_blocks
from cce.reclustering.refit.coding import CodebookSums, assign
from cce.reclustering.refit.estimates import Fit


def make_fit(num_ids: int, dim: int) -> Fit:
    generator = torch.Generator().manual_seed(num_ids + dim)
    mixing = torch.randn(num_ids, dim, dim, generator=generator)
    hessians = mixing @ mixing.transpose(1, 2) + 0.1 * torch.eye(dim)
    return Fit(torch.arange(num_ids), torch.randn(num_ids, dim, generator=generator), hessians)


def make_codebooks(num_columns: int, num_rows: int, width: int) -> torch.Tensor:
    return torch.randn(num_columns, num_rows, width, generator=torch.Generator().manual_seed(1))


def costs(fit: Fit, codebooks: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """`(q - p)ᵀ A (q - p)` of each id."""
    decoded = torch.cat([book[rows] for book, rows in zip(codebooks, codes.T, strict=True)], dim=1)
    error = decoded - fit.vectors
    return torch.einsum("ni,nij,nj->n", error, fit.hessians, error)


def test_one_column_gets_the_cheapest_row():
    fit, codebooks = make_fit(50, 3), make_codebooks(1, 9, 3)
    codes, _ = assign(fit, codebooks)
    tried = torch.stack([costs(fit, codebooks, torch.full((50, 1), row)) for row in range(9)])
    assert torch.equal(codes[:, 0], tried.argmin(0))


def test_no_other_row_of_the_last_column_is_cheaper_and_few_are_far_from_the_best():
    fit, codebooks = make_fit(60, 4), make_codebooks(2, 6, 2)
    codes, _ = assign(fit, codebooks)
    found = costs(fit, codebooks, codes)
    pairs = product(range(6), range(6))
    tried = torch.stack([costs(fit, codebooks, torch.tensor(rows).expand(60, 2)) for rows in pairs])
    for row in range(6):
        other = torch.stack([codes[:, 0], torch.full((60,), row)], dim=1)
        assert bool((found <= costs(fit, codebooks, other) + 1e-4).all())
    assert float(found.sum()) < 1.25 * float(tried.min(0).values.sum())


def test_blocks_are_whole_matrices_with_zeros_between_them():
    dim, block_dim = 8, 4
    blocks = torch.stack([make_fit(40, block_dim).hessians, make_fit(41, block_dim).hessians[:40]], 1)
    whole = torch.stack([torch.block_diag(*each) for each in blocks])
    vectors = make_fit(40, dim).vectors
    fits = [Fit(torch.arange(40), vectors, each) for each in (whole, blocks.view(40, dim, block_dim))]
    codebooks = make_codebooks(4, 7, 2)
    expected, found = (assign(fit, codebooks) for fit in fits)
    assert torch.equal(found[0], expected[0])
    torch.testing.assert_close(found[1], expected[1])
    sums = [CodebookSums.zeros(codebooks) for _ in fits]
    for each, fit in zip(sums, fits, strict=True):
        each.add(fit, *expected)
    torch.testing.assert_close(sums[1].solve(codebooks), sums[0].solve(codebooks))


@pytest.mark.parametrize("block_dim", [8, 4])
def test_compiled_loops_find_what_plain_torch_finds(monkeypatch, block_dim):
    whole, codebooks = make_fit(300, 8), make_codebooks(4, 11, 2)
    blocks = torch.stack([diagonal_blocks(each, block_dim) for each in whole.hessians])
    fit = Fit(whole.ids, whole.vectors, blocks)
    found = []
    for available in (coding.available, False):
        monkeypatch.setattr(coding, "available", available)
        sums = CodebookSums.zeros(codebooks)
        codes, wanted = assign(fit, codebooks)
        sums.add(fit, codes, wanted)
        found.append((codes, wanted, sums.hessians, sums.targets))
    (codes, *others), (plain_codes, *plain_others) = found
    assert torch.equal(codes, plain_codes)
    for each, plain in zip(others, plain_others, strict=True):
        torch.testing.assert_close(each, plain, rtol=1e-4, atol=1e-4)


def test_the_metric_decides_not_the_distance():
    fit = Fit(torch.arange(1), torch.zeros(1, 2), torch.diag(torch.tensor([100.0, 0.01])).unsqueeze(0))
    codebooks = torch.tensor([[[0.2, 0.0], [0.0, 3.0]]])
    codes, _ = assign(fit, codebooks)
    assert codes.tolist() == [[1]]


@pytest.mark.parametrize("num_columns", [1, 2])
def test_solved_rows_cost_the_least(num_columns):
    fit, codebooks = make_fit(200, 4), make_codebooks(num_columns, 5, 4 // num_columns)
    codes, wanted = assign(fit, codebooks)
    sums = CodebookSums.zeros(codebooks)
    for part in (slice(0, 80), slice(80, 200)):
        some = Fit(fit.ids[part], fit.vectors[part], fit.hessians[part])
        sums.add(some, codes[part], wanted[part])
    solved = sums.solve(codebooks)
    for column in range(num_columns):  # each column is best with the others as they were
        moved = codebooks.clone()
        moved[column] = solved[column]
        moved.requires_grad_()
        (slope,) = torch.autograd.grad(costs(fit, moved, codes).sum(), moved)
        torch.testing.assert_close(slope[column], torch.zeros_like(slope[column]), rtol=0, atol=1e-2)
        assert costs(fit, moved, codes).sum() <= costs(fit, codebooks, codes).sum()


def test_a_row_without_ids_stays():
    fit = make_fit(3, 2)
    codebooks = make_codebooks(1, 4, 2)
    sums = CodebookSums.zeros(codebooks)
    sums.add(fit, torch.zeros(3, 1, dtype=torch.int64), torch.ones(3, 1, 2))
    solved = sums.solve(codebooks)
    assert torch.equal(solved[0, 1:], codebooks[0, 1:])
    assert not torch.equal(solved[0, 0], codebooks[0, 0])
