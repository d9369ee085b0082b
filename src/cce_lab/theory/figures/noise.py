"""The paper's appendix "SVD aligned noise converges faster": four kinds of noise on an X of low rank plus a bit.

The paper's settings are 40 repetitions and rank 10; the other sizes are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cce_lab.theory.bounds import lies_under
from cce_lab.theory.figure import Claim, Figure, Series, steps
from cce_lab.theory.least_squares import NOISES, LeastSquares, dense_cce


@dataclass(frozen=True)
class Sizes:
    """Sizes of X and Y; `level` is the size of the noise in X beside its rank-10 part."""

    num_examples: int = 200
    num_embeddings: int = 50
    embedding_dim: int = 10
    rank: int = 10
    level: float = 0.1
    num_rows: int = 20
    num_steps: int = 60
    repetitions: int = 40


QUICK = Sizes(num_examples=100, num_embeddings=30, embedding_dim=5, num_rows=10, num_steps=40, repetitions=6)


def noise_figure(*, seed: int = 0, quick: bool = False) -> Figure:
    """The mean excess loss of each kind of noise, over repetitions, each with its own X and Y."""
    sizes = QUICK if quick else Sizes()
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, list[list[float]]] = {name: [] for name in NOISES}
    for _ in range(sizes.repetitions):
        problem = low_rank_problem(sizes, generator).reduced
        for name, losses in found.items():
            run = dense_cce(problem, sizes.num_rows, num_steps=sizes.num_steps, noise=name, generator=generator)
            losses.append([excess / problem.signal for excess in run.excesses])
    excesses = {name: torch.tensor(losses, dtype=torch.float64) for name, losses in found.items()}
    fall = (1 - 1 / sizes.num_embeddings) ** (sizes.num_rows - sizes.embedding_dim)
    bands = []  # the mean, in a band from the first to the last tenth of the runs
    for name, runs in excesses.items():
        low, high = (tuple(runs.quantile(share, dim=0).tolist()) for share in (0.1, 0.9))
        bands.append(Series(name, tuple(range(runs.shape[1])), tuple(runs.mean(dim=0).tolist()), low, high))
    ideal = [fall**step for step in range(sizes.num_steps + 1)]
    return Figure(
        name="noise",
        title="Smart noise against IID noise: mean excess loss relative to ‖XT*‖²",
        x_label="step",
        y_label="excess loss / ‖XT*‖²",
        series=(
            *bands,
            steps("bound with 1/d1", ideal, is_reference=True),
        ),
        claims=_claims(excesses, ideal),
        settings={**vars(sizes), "seed": seed},
        log_y=True,
    )


def low_rank_problem(sizes: Sizes, generator: torch.Generator) -> LeastSquares:
    """A random X of rank `rank` plus `level` times normal values, and a normal Y."""

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    low_rank = normal(sizes.num_examples, sizes.rank) @ normal(sizes.rank, sizes.num_embeddings)
    x = low_rank + sizes.level * normal(sizes.num_examples, sizes.num_embeddings)
    return LeastSquares(x, normal(sizes.num_examples, sizes.embedding_dim))


def _claims(runs: dict[str, torch.Tensor], ideal: list[float]) -> tuple[Claim, ...]:
    means = {name: found.mean(dim=0).tolist() for name, found in runs.items()}
    iid, smart = means["iid"], means["smart"]
    ahead = next((step for step in range(1, len(iid)) if smart[step] < iid[step]), len(iid))
    slower = {name: _slowdown(means[name], means[f"half-{name}"]) for name in ("iid", "smart")}
    is_under, part = lies_under(runs["smart"], ideal)
    return (
        Claim(
            "smart noise converges faster, at least near the optimum",
            smart[-1] < iid[-1],
            f"{smart[-1]:.2g} and {iid[-1]:.2g} at the end; ahead from step {ahead} on",
        ),
        Claim("smart noise keeps the bound with 1/d1", is_under, f"at most {part:.3f} of it"),
        Claim(
            "holding M to [I | M'] costs more with IID noise",
            slower["iid"] > slower["smart"],
            f"{slower['iid']:.1f} and {slower['smart']:.1f} times the steps to the same loss",
        ),
    )


def _slowdown(whole: list[float], half: list[float]) -> float:
    """How many times the steps the half version takes to where it ends."""
    reached = next((step for step, excess in enumerate(whole) if excess <= half[-1]), len(whole) - 1)
    return (len(half) - 1) / max(reached, 1)
