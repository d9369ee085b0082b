"""The paper's "K-means as matrix factorization": its 7 × 2 example, and how near `A · M` comes as A gets wider."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from cce_lab.theory.figure import Claim, Figure, Series
from cce_lab.theory.least_squares import square
from cce_lab.theory.sparse import SparseFactor, factorise, ones_at

TABLE = (  # the paper's
    (0.417, 0.720),
    (0.000, 0.302),
    (0.147, 0.092),
    (0.186, 0.346),
    (0.397, 0.539),
    (0.419, 0.685),
    (0.204, 0.878),
)
CLUSTERS = (0, 1, 3, 1, 0, 0, 2)  # which row of the codebook each row of the table has
CODEBOOK = ((0.411, 0.648), (0.093, 0.324), (0.204, 0.878), (0.147, 0.092))
STARTS = 20  # runs of k-means from random starts, of which the best is used


def factorisation_figure(*, seed: int = 0, quick: bool = False, progress: bool = False) -> Figure:
    """What k-means, k-means with two 1s and random assignments leave of a table, against the columns of A."""
    del progress  # seconds
    generator = torch.Generator().manual_seed(seed)
    num_embeddings, dim, widths = (200, 4, (4, 16, 64)) if quick else (2000, 8, (4, 8, 16, 32, 64, 128, 256, 512))
    table = torch.randn(num_embeddings, dim, generator=generator, dtype=torch.float64)
    ways: dict[str, Callable[[int], SparseFactor]] = {
        "k-means": lambda k: factorise(table, k, generator=generator),
        "k-means, two 1s": lambda k: factorise(table, k, num_ones=2, generator=generator),
        "random": lambda k: ones_at(torch.randint(k, (num_embeddings, 1), generator=generator), k),
    }
    lines = {name: tuple(left_over(table, way(k)) for k in widths) for name, way in ways.items()}
    learned, random = lines["k-means"], lines["random"]
    return Figure(
        name="factorisation",
        title="k-means as matrix factorisation: ‖T − A M‖² / ‖T‖²",
        x_label="columns of A",
        y_label="left over",
        series=tuple(Series(name, widths, line, is_reference=name == "random") for name, line in lines.items()),
        claims=(
            _example(generator),
            Claim(
                "the wider A is, the less is left over",
                all(after < before for before, after in pairwise(learned)),
                f"{learned[0]:.3f} → {learned[-1]:.3f}",
            ),
            Claim(
                "A approximates the column space, which random assignments do not",
                all(ours < theirs for ours, theirs in zip(learned, random, strict=True)),
                f"{learned[-1]:.3f} left over, {random[-1]:.3f} with random assignments",
            ),
        ),
        settings={"num_embeddings": num_embeddings, "embedding_dim": dim, "seed": seed},
    )


def left_over(table: Tensor, factor: SparseFactor) -> float:
    """How much of the table no codebook can give with this A: the part outside the span of its columns."""
    return square(table - factor.times(best_codebook(table, factor))) / square(table)


def best_codebook(table: Tensor, factor: SparseFactor) -> Tensor:
    """`argmin_M ‖A M − T‖²`, from `AᵀA` and `AᵀT`, which are small."""
    inverse: Tensor = torch.linalg.pinv(factor.gram(), hermitian=True)
    return inverse @ factor.after(table.T).T


def _example(generator: torch.Generator) -> Claim:
    table = torch.tensor(TABLE, dtype=torch.float64)
    tries = [factorise(table, len(CODEBOOK), generator=generator) for _ in range(STARTS)]
    best = min(tries, key=lambda factor: left_over(table, factor))
    paper = ones_at(torch.tensor(CLUSTERS).unsqueeze(1), len(CODEBOOK))
    same = [
        groups[:, None] == groups[None, :] for groups in (best.rows[:, 0], paper.rows[:, 0])
    ]  # whatever their names
    off = float((best_codebook(table, paper) - torch.tensor(CODEBOOK, dtype=torch.float64)).abs().max())
    errors = left_over(table, best), left_over(table, paper)
    return Claim(
        "the paper's 7 × 2 table has the paper's factors",
        off < 1e-3 and torch.equal(*same),
        f"codebook within {off:.4f} of the paper's, left over {errors[0]:.4f} and {errors[1]:.4f}",
    )
