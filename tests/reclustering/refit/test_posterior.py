"""The prior of what ids want, and where a parabola is least."""

import numpy as np
import torch

from cce.reclustering.refit import posterior
from cce.reclustering.refit.packing import pack
from cce.reclustering.refit.posterior import Parabolas, Prior, learn_prior

DIM = 4


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
    monkeypatch.setattr(posterior, "SOLVED", 7)
    mixing = torch.randn(30, DIM, DIM, generator=seeded())
    curvatures, points = mixing @ mixing.mT, torch.zeros(30, DIM)
    prior = Prior(torch.zeros(DIM), torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0])))
    parabolas = Parabolas(torch.arange(30), points, points[:, 0], points, pack(curvatures), torch.ones(30))
    expected = torch.linalg.inv(curvatures + prior.precision).mean(0)
    torch.testing.assert_close(parabolas.unknown(prior)[0], expected)


def test_em_finds_the_distribution_behind_noisy_readings():
    """Each id's vector is read with noise of its own; the prior is that of the vectors, not of the readings."""
    deviations = torch.tensor([0.5, 1.0, 2.0, 1.0])
    vectors = 0.7 + deviations * torch.randn(20_000, DIM, generator=seeded())
    noise = 0.3 + 2 * torch.rand(20_000, 1, generator=seeded(1))
    readings = vectors + noise * torch.randn(20_000, DIM, generator=seeded(2))
    curvatures = torch.eye(DIM) / noise.unsqueeze(2) ** 2
    start = torch.zeros_like(readings)
    gradients = -(curvatures @ readings.unsqueeze(2)).squeeze(2)
    parabolas = Parabolas(torch.arange(20_000), start, start[:, 0], gradients, pack(curvatures), torch.ones(20_000))
    found = learn_prior(parabolas, Prior.around(torch.randn(9, DIM, generator=seeded(3))), 60)
    torch.testing.assert_close(found.mean, torch.full((DIM,), 0.7), rtol=0, atol=0.05)
    torch.testing.assert_close(torch.linalg.inv(found.precision).diag(), deviations**2, rtol=0.15, atol=0)


def test_a_crowd_takes_smaller_steps():
    curvatures = torch.eye(DIM).expand(3, DIM, DIM).contiguous()
    gradients, points = torch.ones(3, DIM), torch.zeros(3, DIM)
    crowds = torch.tensor([1.0, 2.0, 4.0])
    parabolas = Parabolas(torch.arange(3), points, points[:, 0], gradients, pack(curvatures), crowds)
    flat = Prior(torch.zeros(DIM), 1e-4 * torch.eye(DIM))
    torch.testing.assert_close(parabolas.step(flat)[:, 0], -1 / crowds.sqrt(), rtol=1e-3, atol=0)
    torch.testing.assert_close(parabolas.minimum(flat)[:, 0], -torch.ones(3), rtol=1e-3, atol=0)


def test_the_prior_of_constant_vectors_is_finite():
    found = Prior.around(torch.ones(5, DIM))
    assert bool(found.precision.isfinite().all())
