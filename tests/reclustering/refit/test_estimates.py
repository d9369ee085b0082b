"""The prior of what ids want, and where a quadratic is least."""

import numpy as np
import torch

from cce.reclustering.refit import estimates
from cce.reclustering.refit.blocks import pack
from cce.reclustering.refit.estimates import Prior, Quadratics, learn_prior

DIM = 4


def quadratics_of(ids, points, losses, gradients, packed, num_moving, common=None) -> Quadratics:
    return Quadratics(ids, points, losses, gradients, packed, num_moving, torch.ones(len(ids)), common)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_m_step_adds_what_is_not_known():
    vectors = torch.randn(5000, DIM, generator=seeded())
    found = Prior.learned(vectors, torch.diag(1 / torch.tensor([1.0, 2.0, 4.0, 8.0])).unsqueeze(0))
    expected = np.cov(vectors.numpy().T, bias=True) + np.diag([1, 1 / 2, 1 / 4, 1 / 8])
    np.testing.assert_allclose(torch.linalg.inv(found.precision).numpy(), expected, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found.mean, vectors.mean(0))


def test_the_m_step_takes_blocks_for_independent():
    vectors = torch.randn(500, DIM, generator=seeded()) @ torch.randn(DIM, DIM, generator=seeded(1))
    covariance = np.cov(vectors.numpy().T, bias=True) + np.diag([1, 1 / 2, 1 / 4, 1 / 8])
    covariance[:2, 2:] = covariance[2:, :2] = 0
    found = Prior.learned(vectors, torch.diag_embed(1 / torch.tensor([[1.0, 2.0], [4.0, 8.0]])))
    np.testing.assert_allclose(torch.linalg.inv(found.precision).numpy(), covariance, rtol=1e-3, atol=1e-4)


def test_what_is_not_known_is_the_mean_of_inverses(monkeypatch):
    monkeypatch.setattr(estimates, "SOLVED", 7)
    mixing = torch.randn(30, DIM, DIM, generator=seeded())
    hessians, points = mixing @ mixing.mT, torch.zeros(30, DIM)
    prior = Prior(torch.zeros(DIM), torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0])))
    quadratics = quadratics_of(torch.arange(30), points, points[:, 0], points, pack(hessians), torch.ones(30))
    expected = torch.linalg.inv(hessians + prior.precision).mean(0)
    torch.testing.assert_close(quadratics.posterior_covariance(prior)[0], expected)


def test_em_finds_the_distribution_behind_noisy_readings():
    """Each id's vector is read with noise of its own; the prior is that of the vectors, not of the readings."""
    deviations = torch.tensor([0.5, 1.0, 2.0, 1.0])
    vectors = 0.7 + deviations * torch.randn(20_000, DIM, generator=seeded())
    noise = 0.3 + 2 * torch.rand(20_000, 1, generator=seeded(1))
    readings = vectors + noise * torch.randn(20_000, DIM, generator=seeded(2))
    hessians = torch.eye(DIM) / noise.unsqueeze(2) ** 2
    start = torch.zeros_like(readings)
    gradients = -(hessians @ readings.unsqueeze(2)).squeeze(2)
    quadratics = quadratics_of(torch.arange(20_000), start, start[:, 0], gradients, pack(hessians), torch.ones(20_000))
    found = learn_prior(quadratics, Prior.around(torch.randn(9, DIM, generator=seeded(3))), 60)
    torch.testing.assert_close(found.mean, torch.full((DIM,), 0.7), rtol=0, atol=0.05)
    torch.testing.assert_close(torch.linalg.inv(found.precision).diag(), deviations**2, rtol=0.15, atol=0)


def test_a_crowd_takes_smaller_steps():
    hessians = torch.eye(DIM).expand(3, DIM, DIM).contiguous()
    gradients, points = torch.ones(3, DIM), torch.zeros(3, DIM)
    crowds = torch.tensor([1.0, 2.0, 4.0])
    quadratics = quadratics_of(torch.arange(3), points, points[:, 0], gradients, pack(hessians), crowds)
    flat = Prior(torch.zeros(DIM), 1e-4 * torch.eye(DIM))
    torch.testing.assert_close(quadratics.step(flat)[:, 0], -1 / crowds.sqrt(), rtol=1e-3, atol=0)
    torch.testing.assert_close(quadratics.minimum(flat)[:, 0], -torch.ones(3), rtol=1e-3, atol=0)


def test_the_prior_of_constant_vectors_is_finite():
    found = Prior.around(torch.ones(5, DIM))
    assert bool(found.precision.isfinite().all())
