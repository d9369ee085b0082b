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
    general = _general(num_samples // 10, generator)
    return Figure(
        name="lemma",
        title="The lemma: E[x / (p x + (1 − p) y)] for IID x and y",
        x_label="p",
        y_label="expectation",
        series=(
            *(_series(name, estimates) for name, estimates in found.items()),
            *(Series(f"{name}, exact", GRID, line, is_reference=True) for name, line in exact.items()),
        ),
        claims=(_lemma_claim(found), _general_claim(general), _formula_claim(found, exact), _tight_claim(exact)),
        settings={"num_samples": num_samples, "seed": seed},
    )


def _series(name: str, estimates: list[Estimate]) -> Series:
    low = tuple(found.mean - ERRORS * found.error for found in estimates)
    high = tuple(found.mean + ERRORS * found.error for found in estimates)
    return Series(name, GRID, tuple(found.mean for found in estimates), low, high)


def _general(num_samples: int, generator: torch.Generator) -> list[Estimate]:
    """n variables with random weights, of which the last is at most 1/n."""
    found = []
    for n in NUM_VARIABLES:
        weights = torch.rand(n, generator=generator, dtype=torch.float64).sort(descending=True).values
        p = (weights / weights.sum()).tolist()  # the smallest is last
        found += [simulate_ratio(p, name, num_samples=num_samples, generator=generator) for name in DISTRIBUTIONS]
    return found


def _lemma_claim(found: dict[str, list[Estimate]]) -> Claim:
    halves = [estimates[: len(GRID) // 2 + 1] for estimates in found.values()]  # p ≤ 1/2
    least = min((estimate for half in halves for estimate in half), key=lambda estimate: estimate.mean)
    held = all(_at_least_one(estimate) for half in halves for estimate in half)
    return Claim("the expectation is at least 1 for p ≤ 1/2", held, f"least {least.mean:.4f} ± {least.error:.4f}")


def _general_claim(found: list[Estimate]) -> Claim:
    least = min(found, key=lambda estimate: estimate.mean)
    evidence = f"least {least.mean:.3f} ± {least.error:.3f} over n = {', '.join(map(str, NUM_VARIABLES))}"
    return Claim("and for n variables, if p_n ≤ 1/n", all(map(_at_least_one, found)), evidence)


def _formula_claim(found: dict[str, list[Estimate]], exact: dict[str, tuple[float, ...]]) -> Claim:
    off = max(
        abs(estimate.mean - value) / estimate.error
        for name, line in exact.items()
        for estimate, value in zip(found[name], line, strict=True)
        if estimate.error > 0
    )
    return Claim("the simulation agrees with the integrals", off < ERRORS, f"at most {off:.1f} standard errors off")


def _tight_claim(exact: dict[str, tuple[float, ...]]) -> Claim:
    beyond = {name: min(line[len(GRID) // 2 + 1 :]) for name, line in exact.items()}
    evidence = ", ".join(f"{name} {value:.3f}" for name, value in beyond.items())
    return Claim("the condition is needed: beyond p = 1/2 it falls below 1", max(beyond.values()) < 1, evidence)


def _at_least_one(estimate: Estimate) -> bool:
    return estimate.mean + ERRORS * estimate.error >= 1
