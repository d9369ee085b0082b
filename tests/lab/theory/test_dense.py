"""Dense CCE: Algorithm 1 step by step, its bound, its noise."""

import pytest
import torch

from cce_lab.theory import LeastSquares, dense_cce, lies_under, theorem_bound
from cce_lab.theory.least_squares import NOISES
from helpers.draws import seeded
from helpers.theory import normal, problem_of

SPECTRA = {
    "normal": (200, 20, None),
    "equal": (100, 12, [1.0] * 12),
    "geometric": (100, 12, [2.0**-index for index in range(12)]),
    "one small": (60, 10, [1.0] * 9 + [0.05]),
    "one large": (60, 10, [30.0] + [1.0] * 9),
}


def test_a_step_is_the_papers():
    """H = [T | G] with k − d2 columns of noise; M is fitted by normal equations; T = HM."""
    problem = problem_of(80, 12, 3)
    run = dense_cce(problem, 7, num_steps=3, generator=seeded())
    table, numbers = torch.zeros(12, 3, dtype=torch.float64), seeded()
    for excess in run.excesses[1:]:
        noise = torch.randn(12, 4, generator=numbers, dtype=torch.float64)
        features = torch.cat([table, noise], dim=1)
        seen = problem.x @ features
        table = features @ (torch.linalg.pinv(seen) @ problem.y)
        assert excess == pytest.approx(problem.excess(table))
    torch.testing.assert_close(run.table, table)


def test_a_half_step_keeps_the_table_and_fits_the_noise():
    problem = problem_of(80, 12, 3)
    run = dense_cce(problem, 7, num_steps=2, noise="half-iid", generator=seeded())
    table, numbers = torch.zeros(12, 3, dtype=torch.float64), seeded()
    for _ in range(2):
        noise = torch.randn(12, 4, generator=numbers, dtype=torch.float64)
        table = table + noise @ (torch.linalg.pinv(problem.x @ noise) @ (problem.y - problem.x @ table))
    torch.testing.assert_close(run.table, table)


@pytest.mark.parametrize("noise", NOISES)
def test_losses_never_rise(noise):
    run = dense_cce(problem_of(80, 12, 3), 6, num_steps=20, noise=noise, generator=seeded())
    assert len(run.excesses) == 21
    assert all(after <= before * (1 + 1e-9) for before, after in zip(run.excesses, run.excesses[1:], strict=False))


@pytest.mark.slow
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_the_mean_loss_lies_under_the_theorems_bound(spectrum):
    num_examples, num_embeddings, values = SPECTRA[spectrum]
    problem = problem_of(num_examples, num_embeddings, 3, spectrum=values).reduced
    losses = [dense_cce(problem, 6, num_steps=8, generator=seeded(seed)).losses for seed in range(60)]
    is_under, part = lies_under(torch.tensor(losses, dtype=torch.float64), theorem_bound(problem, 6, 8))
    assert is_under, part


def test_the_bound_is_near_for_equal_values_so_twice_its_rate_is_broken():
    """The test above can fail: a theorem that promised twice the rate would be refuted by the same runs."""
    problem = problem_of(100, 12, 1, spectrum=[1.0] * 12).reduced
    losses = [dense_cce(problem, 2, num_steps=8, noise="half-iid", generator=seeded(s)).losses for s in range(60)]
    excesses = torch.tensor(losses, dtype=torch.float64) - problem.floor
    assert lies_under(excesses, [(1 - 1 / 12) ** step * problem.signal for step in range(9)])[0]
    assert not lies_under(excesses, [(1 - 1 / 12) ** (2 * step) * problem.signal for step in range(9)])[0]


@pytest.mark.slow
def test_the_bound_with_rho_replaced_by_1_over_d1_is_broken_in_the_worst_direction():
    """Y along the smallest singular direction: this is why the theorem needs ρ, and smart noise does not."""
    problem = problem_of(60, 10, 1, spectrum=[1.0] * 9 + [0.05])
    worst = torch.linalg.svd(problem.x, full_matrices=False).U[:, -1:]
    problem = LeastSquares(problem.x, worst).reduced
    ideal = [(1 - 1 / 10) ** step * problem.signal for step in range(21)]
    runs = {
        noise: torch.tensor(
            [dense_cce(problem, 2, num_steps=20, noise=noise, generator=seeded(s)).excesses for s in range(40)],
            dtype=torch.float64,
        )
        for noise in ("half-iid", "half-smart")
    }
    assert not lies_under(runs["half-iid"], ideal)[0]
    assert lies_under(runs["half-smart"], ideal)[0]


SHAPES = {"equal": [1.0] * 6, "geometric": [2.0**-i for i in range(6)], "one small": [1.0] * 5 + [0.05]}


def left_over(sigma, target, noise):
    """`inf_M ‖Σ(GM − T)‖²` for many G, by projection; X = Σ without loss, as the lemma's proof says."""
    q = torch.linalg.qr(sigma.view(1, -1, 1) * noise).Q
    seen = sigma.unsqueeze(1) * target
    return (seen - q @ (q.transpose(1, 2) @ seen)).square().sum((1, 2))


def draws(num_columns):
    return torch.randn(4000, 6, num_columns, generator=seeded(3), dtype=torch.float64)


@pytest.mark.parametrize("spectrum", SHAPES)
@pytest.mark.parametrize("where", [0, 5, "anywhere"])
def test_the_lemma_of_one_vector(spectrum, where):
    """`E_g inf_m ‖X(gm − t)‖² ≤ (1 − ρ)‖Xt‖²`, for any t: along the largest, the smallest and all directions."""
    sigma = torch.tensor(SHAPES[spectrum], dtype=torch.float64)
    t = normal(6, 1) if where == "anywhere" else torch.eye(6, dtype=torch.float64)[:, where : where + 1]
    found, rho = left_over(sigma, t, draws(1)), sigma[-1] ** 2 / sigma.square().sum()
    bound = (1 - rho) * (sigma.unsqueeze(1) * t).square().sum()
    assert found.mean() - 3 * found.std() / len(found) ** 0.5 <= bound
    if spectrum == "equal":  # no inequality is left: a random line takes a sixth
        assert float(found.mean() / bound) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("spectrum", SHAPES)
@pytest.mark.parametrize("num_columns", [2, 4])
def test_the_lemma_of_one_step_with_matrices(spectrum, num_columns):
    """`E_G inf_M ‖X(GM − T)‖² ≤ (1 − ρ)^k ‖XT‖²` for k columns of noise; with equal values the mean is `(1 − k/d)`."""
    sigma, target = torch.tensor(SHAPES[spectrum], dtype=torch.float64), normal(6, 3)
    found, rho = left_over(sigma, target, draws(num_columns)), sigma[-1] ** 2 / sigma.square().sum()
    signal = (sigma.unsqueeze(1) * target).square().sum()
    assert found.mean() <= (1 - rho) ** num_columns * signal
    if spectrum == "equal":
        assert float(found.mean() / signal) == pytest.approx(1 - num_columns / 6, abs=0.02)


def test_a_half_step_leaves_over_what_the_lemma_is_about():
    sigma, target = torch.tensor(SHAPES["geometric"], dtype=torch.float64), normal(6, 3)
    problem = LeastSquares(torch.diag(sigma), sigma.unsqueeze(1) * target)
    found, noise = [], []
    for seed in range(20):
        found.append(dense_cce(problem, 5, num_steps=1, noise="half-iid", generator=seeded(seed)).excesses[1])
        noise.append(torch.randn(6, 2, generator=seeded(seed), dtype=torch.float64))
    assert found == pytest.approx(left_over(sigma, target, torch.stack(noise)).tolist())


def test_dense_cce_reaches_the_optimum():
    problem = problem_of(100, 20, 2)
    run = dense_cce(problem, 10, num_steps=60, generator=seeded())
    assert run.excesses[-1] < 1e-6 * problem.signal
    assert run.losses[-1] == pytest.approx(problem.floor)
