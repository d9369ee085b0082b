"""Curvatures of wide vectors, completed by what all ids have in common, against whole matrices."""

import pytest
import torch

from cce.reclustering.refit import blocks as blocks_module
from cce.reclustering.refit.blocks import (
    block_diagonal,
    block_dim_of,
    cholesky,
    diagonal_blocks,
    pack,
    packed_size,
    solve_completed,
    unpack,
)
from cce.reclustering.refit.estimates import Prior, Quadratics, learn_prior

DIM, BLOCK = 12, 4


def quadratics_of(ids, points, losses, gradients, packed, num_moving, common=None) -> Quadratics:
    return Quadratics(ids, points, losses, gradients, packed, num_moving, torch.ones(len(ids)), common)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def slopes(num_ids: int, num_rows: int) -> torch.Tensor:
    """Slopes of the rows of some ids; all dimensions are correlated."""
    mixing = torch.eye(DIM) + 0.7 * torch.randn(DIM, DIM, generator=seeded(1))
    return torch.randn(num_ids, num_rows, DIM, generator=seeded(2)) @ mixing


def blocks_of(matrices: torch.Tensor) -> torch.Tensor:
    return torch.stack([diagonal_blocks(matrix, BLOCK) for matrix in matrices])


def test_blocks_come_back():
    blocks = torch.randn(3, BLOCK, BLOCK, generator=seeded())
    matrix = block_diagonal(blocks)
    assert matrix.shape == (DIM, DIM)
    assert torch.equal(diagonal_blocks(matrix, BLOCK), blocks.view(DIM, BLOCK))
    assert torch.equal(
        diagonal_blocks(matrix + matrix.flip(0, 1).roll(1, 0), DIM), matrix + matrix.flip(0, 1).roll(1, 0)
    )


def test_ids_that_differ_in_their_counts_only_are_solved_exactly(monkeypatch):
    monkeypatch.setattr(blocks_module, "CG_STEPS", 30)
    monkeypatch.setattr(blocks_module, "FLAT", 0.0)
    every = slopes(1, 500)[0]
    common = every.T @ every
    matrices = torch.tensor([0.02, 0.2, 1.0])[:, None, None] * common
    precision, wanted = torch.eye(DIM), torch.randn(3, DIM, generator=seeded(3))
    found = solve_completed(blocks_of(matrices), common, diagonal_blocks(precision, BLOCK), wanted)
    torch.testing.assert_close(found, torch.linalg.solve(matrices + precision, wanted), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("num_rows", [40, 400])
def test_steps_lower_the_loss_by_far_more_than_those_of_independent_blocks(num_rows):
    """The best step is that of the whole matrix; blocks that know nothing of each other overshoot it."""
    rows = 0.1 * slopes(300, num_rows)
    matrices, truth = rows.mT @ rows, torch.randn(300, DIM, generator=seeded(3))
    wanted, precision = (matrices @ truth.unsqueeze(2)).squeeze(2), torch.eye(DIM)
    blocks, prior = blocks_of(matrices), diagonal_blocks(precision, BLOCK)
    found = solve_completed(blocks, matrices.sum(0), prior, wanted)
    square = (-1, DIM // BLOCK, BLOCK, BLOCK)
    parts = wanted.reshape(300, -1, BLOCK, 1)
    independent = torch.linalg.solve((blocks + prior).reshape(square), parts).reshape(300, DIM)

    def gain(vectors: torch.Tensor) -> float:
        curved = (vectors * ((matrices + precision) @ vectors.unsqueeze(2)).squeeze(2)).sum(1)
        return float(((vectors * wanted).sum(1) - curved / 2).sum())

    best = gain(torch.linalg.solve(matrices + precision, wanted))
    assert gain(found) > 0.85 * best
    assert gain(independent) < 0.5 * best


@pytest.mark.parametrize("num_flat", [1, 3])
def test_ids_whose_rows_say_nothing_stay(num_flat):
    """Their quadratics are flat but for the prior; it may be so for all of them."""
    rows = slopes(3, 40)
    rows[:num_flat] = 0
    matrices = rows.mT @ rows
    wanted = torch.ones(3, DIM)
    found = solve_completed(blocks_of(matrices), matrices.sum(0), diagonal_blocks(2 * torch.eye(DIM), BLOCK), wanted)
    assert bool(found.isfinite().all())
    torch.testing.assert_close(found[:num_flat], torch.full((num_flat, DIM), 0.5))


def spoiled(num_ids: int = 6) -> torch.Tensor:
    """Matrices without Cholesky factors: of rank 1, of zeros, indefinite, and not finite; the last is a good one."""
    rows = slopes(num_ids, 40)
    matrices = rows.mT @ rows
    matrices[0] = 1e6 * rows[0, 0].outer(rows[0, 0]) - 1e-3 * torch.eye(DIM)
    matrices[1] = 0
    matrices[2] = -matrices[2]
    matrices[3, 0, 0], matrices[4] = torch.nan, torch.inf
    return matrices


def test_any_matrices_have_factors_and_good_ones_their_own():
    matrices = spoiled()
    with pytest.raises(torch.linalg.LinAlgError):
        torch.linalg.cholesky(matrices)
    for found in (cholesky(matrices), cholesky(matrices.view(2, 3, DIM, DIM)).view_as(matrices)):
        assert bool(found.isfinite().all())
        assert bool((found.diagonal(dim1=-2, dim2=-1) > 0).all())
        assert torch.equal(found[5], torch.linalg.cholesky(matrices[5]))
        torch.testing.assert_close(found[0] @ found[0].T, matrices[0], rtol=0.02, atol=0.02 * float(matrices[0].max()))
        assert float(found[2].diagonal().min()) > 1e14  # so stiff that nothing moves
    for matrix in matrices:
        assert bool(cholesky(matrix).isfinite().all())


@pytest.mark.parametrize("block_dim", [DIM, BLOCK])
def test_ids_whose_hessian_is_not_finite_stay_and_spoil_no_other(block_dim):
    matrices, prior = spoiled(), Prior(torch.zeros(DIM), torch.eye(DIM))
    points, gradients = torch.randn(2, 6, DIM, generator=seeded(4)).unbind()
    gradients[1, 0] = torch.inf
    packed = pack(torch.stack([diagonal_blocks(matrix, block_dim) for matrix in matrices]))
    common = None if block_dim == DIM else matrices[5]
    found = quadratics_of(torch.arange(6), points, torch.zeros(6), gradients, packed, torch.ones(6), common)
    vectors = found.minimum(prior)
    assert torch.equal(vectors[[1, 3, 4]], points[[1, 3, 4]])
    torch.testing.assert_close(vectors[2], points[2])
    assert bool(vectors.isfinite().all())
    assert not torch.equal(vectors[5], points[5])
    learned = learn_prior(found, prior, 4)
    assert bool(learned.precision.isfinite().all())
    assert bool(found.with_prior(prior, vectors).packed.isfinite().all())


@pytest.mark.parametrize(("dim", "block_dim"), [(16, 16), (16, 4), (12, 6), (3, 1), (1, 1)])
def test_what_was_packed_comes_back(dim, block_dim):
    mixing = torch.randn(5, dim // block_dim, block_dim, block_dim, generator=torch.Generator().manual_seed(0))
    blocks = (mixing + mixing.mT).reshape(5, dim, block_dim)
    packed = pack(blocks)
    assert packed.shape == (5, packed_size(dim, block_dim))
    assert block_dim_of(packed.shape[1], dim) == block_dim
    assert torch.equal(unpack(packed, dim), blocks)
    assert torch.equal(unpack(packed[0], dim), blocks[0])


def test_triangles_follow_each_other_row_by_row():
    blocks = torch.tensor([[1.0, 2.0], [2.0, 3.0], [4.0, 5.0], [5.0, 6.0]])
    assert pack(blocks).tolist() == [1, 2, 3, 4, 5, 6]
