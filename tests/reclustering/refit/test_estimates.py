"""Per-id estimates: packed Hessians, where a quadratic is least, and the prior."""

import numpy as np
import pytest
import torch

from cce.distributed import Ranks
from cce.reclustering.refit import estimates
from cce.reclustering.refit.estimates import Prior, Quadratics, Sums, cholesky, packed_size, unpack
from cce.reclustering.refit.lookups import Found
from helpers.draws import seeded

DIM = 4


def pack(matrices: torch.Tensor) -> torch.Tensor:
    row, column = torch.tril_indices(*matrices.shape[1:])
    return matrices[:, row, column]


def quadratics_of(points, gradients, hessians, moving=1.0) -> Quadratics:
    return Quadratics(points, gradients, pack(hessians), torch.ones(len(points)), moving)


@pytest.mark.parametrize("dim", [16, 3, 1])
def test_what_was_packed_comes_back(dim):
    mixing = torch.randn(5, dim, dim, generator=seeded())
    matrices = mixing + mixing.mT
    packed = pack(matrices)
    assert packed.shape == (5, packed_size(dim))
    assert torch.equal(unpack(packed, dim), matrices)


def test_sums_are_those_of_outer_products_written_out():
    slots, jacobians = torch.randint(-1, 3, (50,), generator=seeded()), torch.randn(60, DIM, generator=seeded(1))
    first, second = torch.randn(60, generator=seeded(2)), torch.rand(60, generator=seeded(3))
    rows, cells = torch.arange(50) + 7, torch.randperm(60, generator=seeded(4))[:50]
    sums = Sums(3, DIM)
    counts = sums.add(Found(rows, slots.int(), cells, jacobians), first, second)
    assert torch.equal(counts, torch.zeros(60).index_add_(0, rows, (slots >= 0).float()))
    sums.add_moving(second * counts, torch.full((60,), 3.0))
    found = sums.quadratics(torch.zeros(3, DIM), Ranks())
    assert found.moving == pytest.approx(3)
    for slot in range(3):
        own = slots == slot
        of_rows = jacobians[cells[own]]
        weighted = of_rows * second[rows[own], None]
        torch.testing.assert_close(unpack(found.packed, DIM)[slot], weighted.T @ of_rows)
        torch.testing.assert_close(found.gradients[slot], first[rows[own]] @ of_rows)
        assert found.num_rows[slot] == own.sum()


def test_the_minimum_is_that_of_the_quadratic_with_the_prior(monkeypatch):
    monkeypatch.setattr(estimates, "SOLVED", 7)
    mixing = torch.randn(30, DIM, DIM, generator=seeded())
    hessians, (points, gradients) = mixing @ mixing.mT, torch.randn(2, 30, DIM, generator=seeded(1))
    prior = Prior(torch.full((DIM,), 0.2), torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0])))
    vectors, lower = quadratics_of(points, gradients, hessians).solve(prior)
    whole = hessians + prior.precision
    slope = gradients + (hessians @ (vectors - points).unsqueeze(2)).squeeze(2) + prior.gradient(vectors)
    torch.testing.assert_close(slope, torch.zeros_like(slope), rtol=0, atol=1e-3)
    torch.testing.assert_close(lower @ lower.mT, whole, rtol=1e-4, atol=1e-4)


def test_an_id_without_rows_goes_to_the_mean():
    prior = Prior(torch.full((DIM,), 0.2), 3 * torch.eye(DIM))
    found = quadratics_of(torch.randn(2, DIM), torch.zeros(2, DIM), torch.zeros(2, DIM, DIM))
    torch.testing.assert_close(found.solve(prior)[0], prior.mean.expand(2, DIM))
    torch.testing.assert_close(found.hessians(prior)[0], prior.precision)


def test_the_m_step_adds_what_is_not_known():
    vectors = torch.randn(500, DIM, generator=seeded()) @ torch.randn(DIM, DIM, generator=seeded(1))
    unknown = torch.diag(1 / torch.tensor([1.0, 2.0, 4.0, 8.0]))
    found = Prior.learned(vectors, unknown)
    expected = torch.from_numpy(np.cov(vectors.numpy().T, bias=True)).float() + unknown
    torch.testing.assert_close(torch.linalg.inv(found.precision), expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found.mean, vectors.mean(0))


def test_em_finds_the_distribution_behind_noisy_readings(monkeypatch):
    """Each id's vector is read with noise of its own; the prior is that of the vectors, not of the readings."""
    monkeypatch.setattr(estimates, "LATER_EM_STEPS", 60)
    deviations = torch.tensor([0.5, 1.0, 2.0, 1.0])
    vectors = 0.7 + deviations * torch.randn(20_000, DIM, generator=seeded())
    noise = 0.3 + 2 * torch.rand(20_000, 1, generator=seeded(1))
    readings = vectors + noise * torch.randn(20_000, DIM, generator=seeded(2))
    packed = pack(torch.eye(DIM) / noise.unsqueeze(2) ** 2)
    gradients = -readings / noise**2
    quadratics = Quadratics(torch.zeros_like(readings), gradients, packed, torch.ones(20_000))
    found = quadratics.learn_prior(Prior.around(torch.randn(9, DIM, generator=seeded(3))))
    torch.testing.assert_close(found.mean, torch.full((DIM,), 0.7), rtol=0, atol=0.05)
    torch.testing.assert_close(torch.linalg.inv(found.precision).diag(), deviations**2, rtol=0.15, atol=0)


@pytest.mark.parametrize("moving", [1.0, 2.0, 4.0])
def test_steps_are_smaller_if_many_vectors_move_at_once(moving):
    hessians = torch.eye(DIM).expand(3, DIM, DIM)
    quadratics = quadratics_of(torch.zeros(3, DIM), torch.ones(3, DIM), hessians, moving=moving)
    flat = Prior(torch.zeros(DIM), 1e-4 * torch.eye(DIM))
    torch.testing.assert_close(quadratics.solve(flat)[0][:, 0], torch.full((3,), -1 / moving), rtol=1e-3, atol=0)


def test_the_prior_of_constant_vectors_is_finite():
    assert bool(Prior.around(torch.ones(5, DIM)).precision.isfinite().all())
    assert bool(Prior.learned(torch.ones(5, DIM), torch.zeros(DIM, DIM)).precision.isfinite().all())


def spoiled() -> torch.Tensor:
    """Matrices without Cholesky factors: of rank 1, of zeros, indefinite, and not finite; the last is a good one."""
    rows = torch.randn(6, 40, DIM, generator=seeded(2))
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
    found = cholesky(matrices)
    assert bool(found.isfinite().all())
    assert bool((found.diagonal(dim1=-2, dim2=-1) > 0).all())
    assert torch.equal(found[5], torch.linalg.cholesky(matrices[5]))
    torch.testing.assert_close(found[0] @ found[0].T, matrices[0], rtol=0.02, atol=0.02 * float(matrices[0].max()))
    assert float(found[2].diagonal().min()) > 1e14  # so stiff that nothing moves


def test_ids_whose_hessian_is_not_finite_stay_and_spoil_no_other():
    prior = Prior(torch.zeros(DIM), torch.eye(DIM))
    points, gradients = torch.randn(2, 6, DIM, generator=seeded(4)).unbind()
    gradients[1, 0] = torch.inf
    found = quadratics_of(points, gradients, spoiled())
    vectors, _ = found.solve(prior)
    assert torch.equal(vectors[[1, 3, 4]], points[[1, 3, 4]])
    torch.testing.assert_close(vectors[2], points[2])
    assert bool(vectors.isfinite().all())
    assert not torch.equal(vectors[5], points[5])
    assert bool(found.learn_prior(prior).precision.isfinite().all())
    assert bool(found.hessians(prior).isfinite().all())
