"""The paper's Figure 1b: CCE for least squares, beside the best table and its factorisations.

The loss shown is the excess over the best table, relative to what the best table explains: 1 at the start, 0 at `T*`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tqdm import tqdm

from cce.theory.dense import dense_cce
from cce.theory.figure import Claim, Figure, Series, level, steps
from cce.theory.least_squares import LeastSquares
from cce.theory.sparse import clustered_optimum, sparse_cce

DENSE, ONE, TWO, RANDOM = "dense", "sparse, one 1", "sparse, two 1s", "sparse, random codebook"
MARGIN = 1.05  # of a baseline: as good as


@dataclass(frozen=True)
class Sizes:
    """Of the problem and of the codebooks; the paper gives those of X and Y."""

    num_examples: int = 10_000
    num_embeddings: int = 1_000
    embedding_dim: int = 10
    num_rows: int = 200  # k: sparse codebooks have 2k rows
    num_steps: int = 60

    @property
    def smaller(self) -> tuple[int, int]:
        """Smaller k, for which sparse CCE with one 1 is run too."""
        return self.num_rows // 2, self.num_rows // 4


QUICK = Sizes(num_examples=500, num_embeddings=100, embedding_dim=4, num_rows=20, num_steps=40)


def least_squares_figure(*, seed: int = 0, quick: bool = False, progress: bool = False) -> Figure:
    """Dense and sparse CCE, step by step, on normal X and Y."""
    sizes = QUICK if quick else Sizes()
    generator = torch.Generator().manual_seed(seed)
    problem = normal_problem(sizes.num_examples, sizes.num_embeddings, sizes.embedding_dim, generator=generator)
    runs = _runs(problem.reduced, sizes, generator, progress=progress)
    baselines = _baselines(problem.reduced, sizes, generator)
    return Figure(
        name="least-squares",
        title="CCE for least squares: excess loss relative to ‖XT*‖²",
        x_label="step",
        y_label="excess loss / ‖XT*‖²",
        series=(*runs.values(), *baselines.values()),
        claims=_claims(runs, baselines, sizes),
        settings={**vars(sizes), "seed": seed},
    )


def normal_problem(
    num_examples: int, num_embeddings: int, embedding_dim: int, *, generator: torch.Generator
) -> LeastSquares:
    """X and Y of standard normal numbers."""
    x = torch.randn(num_examples, num_embeddings, generator=generator, dtype=torch.float64)
    y = torch.randn(num_examples, embedding_dim, generator=generator, dtype=torch.float64)
    return LeastSquares(x, y)


def _runs(problem: LeastSquares, sizes: Sizes, generator: torch.Generator, *, progress: bool) -> dict[str, Series]:
    k, num_steps = sizes.num_rows, sizes.num_steps
    options = {ONE: (k, 1, "k-means"), TWO: (k, 2, "k-means"), RANDOM: (k, 1, "random-codebook")}
    options |= {_with(ONE, rows): (rows, 1, "k-means") for rows in sizes.smaller}
    found = {DENSE: dense_cce(problem, k, num_steps=num_steps, generator=generator).excesses}
    for name in tqdm(options, desc="least-squares", leave=False, disable=None if progress else True):
        rows, ones, way = options[name]
        run = sparse_cce(problem, rows, num_steps=num_steps, num_ones=ones, way=way, generator=generator)
        found[name] = run.excesses
    return {name: steps(name, [excess / problem.signal for excess in line]) for name, line in found.items()}


def _baselines(problem: LeastSquares, sizes: Sizes, generator: torch.Generator) -> dict[str, Series]:
    """Factorisations of `T*`: with the k rows that A has, and with the 2k rows that sparse CCE has in all."""
    k, found = sizes.num_rows, {}
    for rows, ones in ((2 * k, 2), *((rows, 1) for rows in (2 * k, k, *sizes.smaller))):
        name = _baseline(rows, ones)
        run = clustered_optimum(problem, rows, num_ones=ones, generator=generator)
        found[name] = level(name, run.excesses[-1] / problem.signal, sizes.num_steps)
    return found


def _with(name: str, num_rows: int) -> str:
    return f"{name}, k = {num_rows}"


def _baseline(num_rows: int, num_ones: int = 1) -> str:
    return f"T* in {num_rows} rows" + (", two 1s" if num_ones == 2 else "")


def _claims(runs: dict[str, Series], baselines: dict[str, Series], sizes: Sizes) -> tuple[Claim, ...]:
    last = {name: line.y[-1] for name, line in runs.items()}
    first = {name: line.y[1] for name, line in runs.items()}
    base = {name: line.y[0] for name, line in baselines.items()}
    lines = ", ".join(f"{name} {first[name]:.3f} → {last[name]:.3g}" for name in runs)
    by_rows = {sizes.num_rows: last[ONE], **{rows: last[_with(ONE, rows)] for rows in sizes.smaller}}
    return (
        Claim("all versions improve with more steps", all(last[name] < first[name] for name in runs), lines),
        Claim("dense CCE goes to the optimum", last[DENSE] < 0.01, f"{last[DENSE]:.2g} left after {sizes.num_steps}"),
        Claim("two 1s do better than one", last[TWO] < last[ONE], f"{last[TWO]:.3f} and {last[ONE]:.3f}"),
        Claim(
            "after many steps a random codebook does better than k-means (notes of the authors)",
            last[RANDOM] < last[ONE],
            f"{last[RANDOM]:.3f} and {last[ONE]:.3f}",
        ),
        *(_reaches(k, found, base[_baseline(k)], f"k = {k} rows") for k, found in by_rows.items()),
        _reaches(sizes.num_rows, last[ONE], base[_baseline(2 * sizes.num_rows)], "the 2k rows it has in all"),
        _reaches(sizes.num_rows, last[TWO], base[_baseline(2 * sizes.num_rows, 2)], "2k rows, both with two 1s"),
    )


def _reaches(num_rows: int, found: float, wanted: float, where: str) -> Claim:
    """Sparse CCE with `num_rows` clusters beside a factorisation of the best table."""
    text = f"sparse CCE with k = {num_rows} comes down to k-means of T* in {where}"
    return Claim(text, found <= MARGIN * wanted, f"{found:.3f}, {wanted:.3f}")
