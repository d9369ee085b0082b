"""The paper's appendix "Correspondence between theory and practice": dense CCE beside the theorem and its corollary.

X and Y are normal, as in the paper. For the corollary X has orthonormal columns instead, so that all its singular
values are equal; Y is the same.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cce_lab.theory.figure import Claim, Figure, steps
from cce_lab.theory.figures.least_squares import normal_problem
from cce_lab.theory.least_squares import (
    LeastSquares,
    corollary_bound,
    dense_cce,
    ideal_bound,
    lies_under,
    rho,
    square,
    steps_needed,
    theorem_bound,
)

NORMAL, EQUAL = "dense CCE", "dense CCE, equal singular values"
THEOREM, IDEAL, COROLLARY = "theorem with ρ", "with 1/d1", "corollary, nearly that with 1/d1"
EPSILON = 0.01  # of ‖XT*‖², what `steps_needed` is asked for
TIGHT = 1.05  # the bound on the loss, as part of the loss


@dataclass(frozen=True)
class Sizes:
    """The paper gives none; these are those of the authors' script, which has 100 columns of noise and one run."""

    num_examples: int = 10_000
    num_embeddings: int = 1_000
    embedding_dim: int = 10
    num_rows: int = 110  # k
    num_steps: int = 100
    repetitions: int = 6


QUICK = Sizes(num_examples=300, num_embeddings=40, embedding_dim=2, num_rows=6, num_steps=60, repetitions=20)


def theory_practice_figure(*, seed: int = 0, quick: bool = False) -> Figure:
    """The mean loss over repetitions, the theorem's bound with ρ, the bound with `1/d1`, and the corollary."""
    sizes = QUICK if quick else Sizes()
    generator = torch.Generator().manual_seed(seed)
    problem = normal_problem(sizes.num_examples, sizes.num_embeddings, sizes.embedding_dim, generator=generator)
    problem = problem.reduced
    runs = {}  # excess losses relative to ‖XT*‖², (repetitions, steps + 1)
    for name, each in ((NORMAL, problem), (EQUAL, equal_values(problem))):
        found = [
            dense_cce(each, sizes.num_rows, num_steps=sizes.num_steps, generator=generator).excesses
            for _ in range(sizes.repetitions)
        ]
        runs[name] = torch.tensor(found, dtype=torch.float64) / each.signal
    bounds = {}  # on the excess, relative to ‖XT*‖²
    for name, bound in ((THEOREM, theorem_bound), (IDEAL, ideal_bound), (COROLLARY, corollary_bound)):
        losses = bound(problem, sizes.num_rows, sizes.num_steps)
        bounds[name] = [(loss - problem.floor) / problem.signal for loss in losses]
    means = [  # in bands from the least to the largest
        replace(steps(name, each.mean(0).tolist()), low=tuple(each.amin(0).tolist()), high=tuple(each.amax(0).tolist()))
        for name, each in runs.items()
    ]
    return Figure(
        name="theory-practice",
        title="Dense CCE against the theorem: mean excess loss relative to ‖XT*‖²",
        x_label="step",
        y_label="excess loss / ‖XT*‖²",
        series=(*means, *(steps(name, line, is_reference=True) for name, line in bounds.items())),
        claims=(*_bound_claims(runs, bounds, problem), *_rate_claims(runs[NORMAL], bounds[THEOREM], problem, sizes)),
        settings={**vars(sizes), "seed": seed},
        log_y=True,
    )


def equal_values(problem: LeastSquares) -> LeastSquares:
    """The same Y, with the Q of `X = QR` for X: `‖QT − Y‖² = ‖T − QᵀY‖² + ‖Y − QQᵀY‖²`.

    The best prediction and the floor stay as they were, since Q spans what X does.
    """
    q, _ = torch.linalg.qr(problem.x)
    inside = q.T @ problem.y
    return LeastSquares(torch.eye(len(inside)), inside, rest=problem.rest + square(problem.y - q @ inside))


def _bound_claims(runs: dict[str, Tensor], bounds: dict[str, list[float]], problem: LeastSquares) -> tuple[Claim, ...]:
    under_theorem, theorem = lies_under(runs[NORMAL], bounds[THEOREM])
    under_corollary, corollary = lies_under(runs[EQUAL], bounds[COROLLARY])
    under_ideal, ideal = lies_under(runs[NORMAL], bounds[IDEAL])
    # the last step to which the mean lies under the bound without a break
    holds = [
        step
        for step in range(1, len(bounds[IDEAL]))
        if lies_under(runs[NORMAL][:, : step + 1], bounds[IDEAL][: step + 1])[0]
    ]
    last = max(holds, default=0)
    loss = 1 / min(_as_losses(bounds[IDEAL], runs[NORMAL], problem))
    return (
        Claim(
            "the mean loss lies under the theorem's bound at every step", under_theorem, f"at most {theorem:.3f} of it"
        ),
        Claim(
            "with equal singular values it lies under the corollary's e^(−i (k − d2) / d1)",
            under_corollary,
            f"at most {corollary:.3f} of it; at the end {runs[EQUAL].mean(dim=0)[-1]:.2g}, {bounds[COROLLARY][-1]:.2g}",
        ),
        Claim(
            "ρ may often be replaced by 1/d1: here at every step",
            under_ideal,
            f"at most {ideal:.3f} of that bound, as a loss {loss:.5f}; to step {last} under it",
        ),
    )


def _as_losses(bound: list[float], runs: Tensor, problem: LeastSquares) -> list[float]:
    """The bound on the loss `‖XT − Y‖²` over its mean, from the first step on."""
    floor = problem.floor / problem.signal
    mean = runs.mean(dim=0).tolist()
    return [(most + floor) / (found + floor) for most, found in zip(bound[1:], mean[1:], strict=True)]


def _rate_claims(runs: Tensor, theorem: list[float], problem: LeastSquares, sizes: Sizes) -> tuple[Claim, ...]:
    mean = runs.mean(dim=0).tolist()
    above = max(_as_losses(theorem, runs, problem))
    rate = -math.log(mean[-1]) / (sizes.num_steps * (sizes.num_rows - sizes.embedding_dim))
    promised = steps_needed(problem, sizes.num_rows, EPSILON)
    taken = next((step for step, excess in enumerate(mean) if excess <= EPSILON), None)
    smallest, ideal = rho(problem), 1 / sizes.num_embeddings
    return (
        Claim(
            "the theorem matches the loss quite tightly: within 5 % at every step",
            above <= TIGHT,
            f"the bound on the loss is at most {above:.3f} of it",
        ),
        Claim(
            "and the rate of the excess: within a factor of 2",
            1 / 2 < rate / smallest < 2,
            f"{rate / smallest:.2f}; for each column of noise {rate:.3g}, ρ {smallest:.3g}, 1/d1 {ideal:.3g}",
        ),
        Claim(
            "O(d1 / k · log(1/ε)) steps leave ε of ‖XT*‖²: "
            f"for ε = {EPSILON} at most twice those of the bound with 1/d1",
            taken is not None and taken <= 2 * promised,
            f"{taken or 'not reached'} and {promised}",
        ),
    )
