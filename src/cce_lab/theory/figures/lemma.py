"""The paper's figure of the lemma: `E[x / (p x + (1 − p) y)]` against p, for exponential and chi-square variables."""

from __future__ import annotations

import torch

from cce_lab.theory.bounds import DISTRIBUTIONS, Estimate, exact_ratio, simulate_ratio
from cce_lab.theory.figure import Claim, Figure, Series

GRID = tuple(round(0.05 * step, 2) for step in range(1, 20))
NUM_VARIABLES = (3, 10, 50)  # of the general lemma, with random weights
ERRORS = 4.0  # standard errors that a simulation may be off: 1 in 16,000


def lemma_figure(*, seed: int = 0, quick: bool = False, progress: bool = False) -> Figure:
    """Simulated for each p, beside the exact curve; and the lemma for more than two variables."""
    del progress  # seconds
    num_samples = 20_000 if quick else 1_000_000
    generator = torch.Generator().manual_seed(seed)
    found = {
        name: [simulate_ratio((1 - p, p), name, num_samples=num_samples, generator=generator) for p in GRID]
        for name in DISTRIBUTIONS
    }
    exact = {name: tuple(exact_ratio(p, name) for p in GRID) for name in DISTRIBUTIONS}
    general = []  # n variables with random weights, of which the last is at most 1/n
    for n in NUM_VARIABLES:
        weights = torch.rand(n, generator=generator, dtype=torch.float64).sort(descending=True).values
        p = (weights / weights.sum()).tolist()  # the smallest is last
        general += [
            simulate_ratio(p, name, num_samples=num_samples // 10, generator=generator) for name in DISTRIBUTIONS
        ]
    series = []
    for name, estimates in found.items():
        means, errors = (tuple(getattr(each, part) for each in estimates) for part in ("mean", "error"))
        low, high = (tuple(m + sign * ERRORS * e for m, e in zip(means, errors, strict=True)) for sign in (-1, 1))
        series.append(Series(name, GRID, means, low, high))
    return Figure(
        name="lemma",
        title="The lemma: E[x / (p x + (1 − p) y)] for IID x and y",
        x_label="p",
        y_label="expectation",
        series=(
            *series,
            *(Series(f"{name}, exact", GRID, line, is_reference=True) for name, line in exact.items()),
        ),
        claims=_claims(found, general, exact),
        settings={"num_samples": num_samples, "seed": seed},
    )


def _claims(
    found: dict[str, list[Estimate]], general: list[Estimate], exact: dict[str, tuple[float, ...]]
) -> tuple[Claim, ...]:
    middle = len(GRID) // 2 + 1  # p ≤ 1/2 before it
    half = [estimate for estimates in found.values() for estimate in estimates[:middle]]
    least, least_of_many = (min(each, key=lambda estimate: estimate.mean) for each in (half, general))
    off = max(
        abs(estimate.mean - value) / estimate.error
        for name, line in exact.items()
        for estimate, value in zip(found[name], line, strict=True)
        if estimate.error > 0
    )
    beyond = {name: min(line[middle:]) for name, line in exact.items()}
    return (
        Claim(
            "the expectation is at least 1 for p ≤ 1/2",
            all(map(_at_least_one, half)),
            f"least {least.mean:.4f} ± {least.error:.4f}",
        ),
        Claim(
            "and for n variables, if p_n ≤ 1/n",
            all(map(_at_least_one, general)),
            f"least {least_of_many.mean:.3f} ± {least_of_many.error:.3f} over n = {', '.join(map(str, NUM_VARIABLES))}",
        ),
        Claim("the simulation agrees with the integrals", off < ERRORS, f"at most {off:.1f} standard errors off"),
        Claim(
            "the condition is needed: beyond p = 1/2 it falls below 1",
            max(beyond.values()) < 1,
            ", ".join(f"{name} {value:.3f}" for name, value in beyond.items()),
        ),
    )


def _at_least_one(estimate: Estimate) -> bool:
    return estimate.mean + ERRORS * estimate.error >= 1
