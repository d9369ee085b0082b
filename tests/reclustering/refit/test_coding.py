"""Codes in the metric of the loss, against trying everything."""

from itertools import product

import pytest
import torch

import cce
from cce.reclustering.refit.coding import TableCoder, assign
from cce.reclustering.refit.estimates import Prior, Quadratics
from helpers.final_form import finalize_table


def make_fit(num_ids: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors and Hessians."""
    generator = torch.Generator().manual_seed(num_ids + dim)
    mixing = torch.randn(num_ids, dim, dim, generator=generator)
    hessians = mixing @ mixing.transpose(1, 2) + 0.1 * torch.eye(dim)
    return torch.randn(num_ids, dim, generator=generator), hessians


def make_codebooks(num_columns: int, num_rows: int, width: int) -> torch.Tensor:
    return torch.randn(num_columns, num_rows, width, generator=torch.Generator().manual_seed(1))


def costs(vectors, hessians, codebooks: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """`(q - p)ᵀ A (q - p)` of each id."""
    decoded = torch.cat([book[rows] for book, rows in zip(codebooks, codes.long().T, strict=True)], dim=1)
    error = decoded - vectors
    return torch.einsum("ni,nij,nj->n", error, hessians, error)


def test_one_column_gets_the_cheapest_row():
    fit, codebooks = make_fit(50, 3), make_codebooks(1, 9, 3)
    codes, _ = assign(*fit, codebooks)
    tried = torch.stack([costs(*fit, codebooks, torch.full((50, 1), row)) for row in range(9)])
    assert torch.equal(codes[:, 0].long(), tried.argmin(0))


def test_no_other_row_of_the_last_column_is_cheaper_and_few_are_far_from_the_best():
    fit, codebooks = make_fit(60, 4), make_codebooks(2, 6, 2)
    codes, _ = assign(*fit, codebooks)
    found = costs(*fit, codebooks, codes)
    pairs = product(range(6), range(6))
    tried = torch.stack([costs(*fit, codebooks, torch.tensor(rows).expand(60, 2)) for rows in pairs])
    for row in range(6):
        other = torch.stack([codes[:, 0], torch.full((60,), row)], dim=1)
        assert bool((found <= costs(*fit, codebooks, other) + 1e-4).all())
    assert float(found.sum()) < 1.25 * float(tried.min(0).values.sum())


def test_the_metric_decides_not_the_distance():
    codebooks = torch.tensor([[[0.2, 0.0], [0.0, 3.0]]])
    codes, _ = assign(torch.zeros(1, 2), torch.diag(torch.tensor([100.0, 0.01])).unsqueeze(0), codebooks)
    assert codes.tolist() == [[1]]


@pytest.mark.parametrize("num_columns", [1, 2])
def test_new_rows_cost_the_least_and_rows_without_ids_stay(num_columns):
    """Each column is best with the others as they were."""
    counts, generator = torch.full((200,), 2), torch.Generator().manual_seed(0)
    table = cce.embeddings.CCEEmbedding(200, 4, num_columns=num_columns, num_rows=6, counts=counts, generator=generator)
    finalize_table(table, generator=generator)
    vectors, hessians = make_fit(200, 4)
    row, column = torch.tril_indices(4, 4)
    gradients = -(hessians @ vectors.unsqueeze(2)).squeeze(2)
    quadratics = Quadratics(torch.zeros(200, 4), gradients, hessians[:, row, column], torch.ones(200))
    prior = Prior(torch.zeros(4), 1e-6 * torch.eye(4))
    coder = TableCoder(table, quadratics, prior, generator)
    coder.codebooks[0, 5] = 1e6  # nobody's
    for part in (0, 1):
        coder.add(slice(part, None, 2), quadratics[torch.arange(part, 200, 2)], prior)
    compact, churn = coder.compact()
    assert coder.num_ids == 200
    assert 0 < churn <= 1
    assert torch.equal(compact.codebooks[0, 5], coder.codebooks[0, 5])
    for at in range(num_columns):
        moved = coder.codebooks.clone()
        moved[at] = compact.codebooks[at]
        moved.requires_grad_()
        (slope,) = torch.autograd.grad(costs(vectors, hessians, moved, coder.pointers).sum(), moved)
        torch.testing.assert_close(slope[at], torch.zeros_like(slope[at]), rtol=0, atol=5e-2)
        before = costs(vectors, hessians, coder.codebooks, coder.pointers).sum()
        assert costs(vectors, hessians, moved, coder.pointers).sum() <= before
