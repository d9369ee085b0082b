"""The paper's appendix "Correspondence between theory and practice": dense CCE beside the theorem, normal X and Y."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from tqdm import trange

from cce.theory.bounds import ideal_bound, lies_under, rho, theorem_bound
from cce.theory.dense import dense_cce
from cce.theory.figure import Claim, Figure, Series, steps
from cce.theory.figures.least_squares import normal_problem

if TYPE_CHECKING:
    from cce.theory.least_squares import LeastSquares


@dataclass(frozen=True)
class Sizes:
    """The paper gives none."""

    num_examples: int = 5_000
    num_embeddings: int = 200
    embedding_dim: int = 5
    num_rows: int = 15  # k
    num_steps: int = 120
    repetitions: int = 10


QUICK = Sizes(num_examples=300, num_embeddings=40, embedding_dim=2, num_rows=6, num_steps=30, repetitions=5)


def theory_practice_figure(*, seed: int = 0, quick: bool = False, progress: bool = False) -> Figure:
    """The mean loss over repetitions, the theorem's bound with ρ, and the bound with `1/d1`."""
    sizes = QUICK if quick else Sizes()
    generator = torch.Generator().manual_seed(seed)
    problem = normal_problem(sizes.num_examples, sizes.num_embeddings, sizes.embedding_dim, generator=generator)
    problem = problem.reduced
    runs = _runs(problem, sizes, generator, progress=progress)
    bounds = {
        name: [(loss - problem.floor) / problem.signal for loss in bound(problem, sizes.num_rows, sizes.num_steps)]
        for name, bound in (("theorem with ρ", theorem_bound), ("with 1/d1", ideal_bound))
    }
    low, mean, high = (tuple(line.tolist()) for line in (runs.amin(dim=0), runs.mean(dim=0), runs.amax(dim=0)))
    return Figure(
        name="theory-practice",
        title="Dense CCE against the theorem: mean excess loss relative to ‖XT*‖²",
        x_label="step",
        y_label="excess loss / ‖XT*‖²",
        series=(
            Series("dense CCE", tuple(range(len(mean))), mean, low, high),
            *(steps(name, line, is_reference=True) for name, line in bounds.items()),
        ),
        claims=_claims(runs, bounds, rho(problem), sizes),
        settings={**vars(sizes), "seed": seed},
        log_y=True,
    )


def _runs(problem: LeastSquares, sizes: Sizes, generator: torch.Generator, *, progress: bool) -> torch.Tensor:
    """Excess losses relative to `‖XT*‖²`, `(repetitions, steps + 1)`."""
    excesses = [
        dense_cce(problem, sizes.num_rows, num_steps=sizes.num_steps, generator=generator).excesses
        for _ in trange(sizes.repetitions, desc="theory-practice", leave=False, disable=None if progress else True)
    ]
    return torch.tensor(excesses, dtype=torch.float64) / problem.signal


def _claims(runs: torch.Tensor, bounds: dict[str, list[float]], smallest: float, sizes: Sizes) -> tuple[Claim, ...]:
    rate = -math.log(float(runs.mean(dim=0)[-1])) / (sizes.num_steps * (sizes.num_rows - sizes.embedding_dim))
    ideal = 1 / sizes.num_embeddings
    (under_theorem, theorem), (under_ideal, best) = (lies_under(runs, bound) for bound in bounds.values())
    return (
        Claim(
            "the mean loss lies under the theorem's bound at every step", under_theorem, f"at most {theorem:.3f} of it"
        ),
        Claim("ρ may often be replaced by 1/d1", under_ideal, f"at most {best:.3f} of that bound"),
        Claim(
            "the theorem matches practice quite tightly: its rate is within a factor of 2",
            1 / 2 < rate / smallest < 2,
            f"for each column of noise {rate:.5f}; ρ {smallest:.5f}, 1/d1 {ideal:.5f}",
        ),
    )
