"""The paper's Figure 1b: CCE for least squares, beside the best table and its factorisations.

The loss shown is the excess over the best table, relative to what the best table explains: 1 at the start, 0 at `T*`.
What the figure should show is in its caption, and in the captions of two larger versions of it that the paper's source
has and the paper has not: "the notes".
"""

from dataclasses import dataclass
from typing import Any

import torch

from cce_lab.theory.figure import Claim, Figure, Series, level, steps
from cce_lab.theory.least_squares import LeastSquares, dense_cce
from cce_lab.theory.sparse import clustered_optimum, refit_cce, sparse_cce

DENSE, ONE, TWO, RANDOM = "dense", "sparse, one 1", "sparse, two 1s", "sparse, random codebook"
FROM_OPTIMUM = "sparse, one 1, from T*"
REFIT = "sparse, exact refits"
OPTIMUM = "T*"
MARGIN = 1.05  # of a baseline: as good as
ZERO = 0.01  # of what the best table explains
Lines = dict[str, Series]


@dataclass(frozen=True)
class Sizes:
    """Sizes of the problem and of the codebooks; the paper gives those of X and Y."""

    num_examples: int = 10_000
    num_embeddings: int = 1_000
    embedding_dim: int = 10
    num_rows: int = 100  # k, as in the authors' script for a problem of these sizes; sparse codebooks have 2k rows
    num_steps: int = 200  # the notes

    @property
    def others(self) -> tuple[int, int]:
        """Other k, for which sparse CCE with one 1 is run too."""
        return 2 * self.num_rows, self.num_rows // 2


QUICK = Sizes(num_examples=500, num_embeddings=100, embedding_dim=4, num_rows=20, num_steps=40)


def least_squares_figure(*, seed: int = 0, quick: bool = False) -> Figure:
    """Dense and sparse CCE, step by step, on normal X and Y."""
    sizes = QUICK if quick else Sizes()
    generator = torch.Generator().manual_seed(seed)
    problem = normal_problem(sizes.num_examples, sizes.num_embeddings, sizes.embedding_dim, generator=generator)
    problem = problem.reduced
    runs, baselines = _lines(problem, sizes, generator)
    # every run before its baseline, so that colours of a pair are alike, and last the runs that have none
    pairs = [line for pair in zip(runs.values(), baselines.values(), strict=False) for line in pair]
    return Figure(
        name="least-squares",
        title=f"CCE for least squares, k = {sizes.num_rows} unless named: excess loss relative to ‖XT*‖²",
        x_label="step",
        y_label="excess loss / ‖XT*‖²",
        series=(*pairs, *list(runs.values())[len(baselines) :]),
        claims=(
            *_course_claims({name: line.y for name, line in runs.items()}, sizes),
            *_baseline_claims(runs, baselines, problem.floor / problem.signal, sizes),
        ),
        settings={**vars(sizes), "seed": seed},
    )


def normal_problem(
    num_examples: int, num_embeddings: int, embedding_dim: int, *, generator: torch.Generator
) -> LeastSquares:
    """X and Y of standard normal values."""
    x = torch.randn(num_examples, num_embeddings, generator=generator, dtype=torch.float64)
    y = torch.randn(num_examples, embedding_dim, generator=generator, dtype=torch.float64)
    return LeastSquares(x, y)


def _lines(problem: LeastSquares, sizes: Sizes, generator: torch.Generator) -> tuple[Lines, Lines]:
    """Runs of CCE; `T*` and factorisations of it, with the k rows that A has and the 2k that sparse CCE has in all."""
    k, last = sizes.num_rows, sizes.num_steps
    common: dict[str, Any] = {"num_steps": last, "generator": generator}
    found = {
        DENSE: dense_cce(problem, k, **common),
        ONE: sparse_cce(problem, k, **common),
        TWO: sparse_cce(problem, k, num_ones=2, **common),
        RANDOM: sparse_cce(problem, k, way="random-codebook", **common),
    }
    found |= {_with(ONE, rows): sparse_cce(problem, rows, **common) for rows in sizes.others}
    found[FROM_OPTIMUM] = sparse_cce(problem, k, start=problem.optimum, **common)
    baselines = {OPTIMUM: level(OPTIMUM, 0.0, last)}
    for rows, ones in ((k, 1), (k, 2), (2 * k, 2), *((rows, 1) for rows in sizes.others)):
        name, run = _baseline(rows, ones), clustered_optimum(problem, rows, num_ones=ones, generator=generator)
        baselines[name] = level(name, run.excesses[-1] / problem.signal, last)
    found |= {name: refit_cce(problem, rows, **common) for rows, name in _refit_names(sizes).items()}
    relative = {name: [excess / problem.signal for excess in run.excesses] for name, run in found.items()}
    return {name: steps(name, line) for name, line in relative.items()}, baselines


def _with(name: str, num_rows: int) -> str:
    return f"{name}, k = {num_rows}"


def _refit_names(sizes: Sizes) -> dict[int, str]:
    """The runs with refits, by their rows."""
    return {sizes.num_rows: REFIT} | {rows: _with(REFIT, rows) for rows in sizes.others}


def _baseline(num_rows: int, num_ones: int = 1) -> str:
    return f"{OPTIMUM} in {num_rows} rows" + (", two 1s" if num_ones == 2 else "")


def _course_claims(runs: dict[str, tuple[float, ...]], sizes: Sizes) -> tuple[Claim, ...]:
    """The claims about the runs alone."""
    again = runs[FROM_OPTIMUM]
    runs = {name: line for name, line in runs.items() if name != FROM_OPTIMUM and not name.startswith(REFIT)}
    first, last = ({name: line[index] for name, line in runs.items()} for index in (1, -1))
    same = [first[name] for name in (DENSE, ONE, TWO, RANDOM)]  # those of one k
    slow = {name: _late_fall(line) for name, line in runs.items() if name != DENSE}
    lines = ", ".join(f"{name} {first[name]:.3f} → {last[name]:.3g}" for name in runs)
    return (
        Claim("all versions improve with more steps", all(last[name] < first[name] for name in runs), lines),
        Claim(
            "all get nearly the same error before any clustering (notes)",
            max(same) <= MARGIN * min(same),
            f"{min(same):.3f} to {max(same):.3f} with k = {sizes.num_rows}",
        ),
        Claim("dense CCE goes to zero", last[DENSE] < ZERO, f"{last[DENSE]:.2g} left after {sizes.num_steps} steps"),
        Claim(
            "sparse CCE converges before it reaches zero (notes)",
            all(last[name] > ZERO and fall < MARGIN - 1 for name, fall in slow.items()),
            f"falls by at most {max(slow.values()):.1%} from the third quarter of the steps to the fourth",
        ),
        Claim("two 1s do better than one", last[TWO] < last[ONE], f"{last[TWO]:.3f} and {last[ONE]:.3f}"),
        Claim(
            "after many steps a random codebook does better than k-means (notes)",
            last[RANDOM] < last[ONE],
            f"{last[RANDOM]:.3f} and {last[ONE]:.3f}",
        ),
        Claim(
            "started from T*, sparse CCE stays where its first clusters of T* put it (ours)",
            again[-1] <= MARGIN * again[1],
            f"{again[1]:.3f} → {again[-1]:.3f}; {last[ONE]:.3f} from zero",
        ),
    )


def _late_fall(line: tuple[float, ...]) -> float:
    """The fraction by which the mean falls from the third quarter to the fourth."""
    quarter = len(line) // 4
    third, fourth = sum(line[-2 * quarter : -quarter]), sum(line[-quarter:])
    return 1 - fourth / third


def _baseline_claims(
    runs: dict[str, Series], baselines: dict[str, Series], floor: float, sizes: Sizes
) -> tuple[Claim, ...]:
    """CCE finds the optimal H and M: beside those that k-means finds once `T*` is known."""
    k, (many, few) = sizes.num_rows, sizes.others
    cases = (
        (k, ONE, k, 1, f"{k} rows"),
        (many, _with(ONE, many), many, 1, f"{many} rows"),
        (few, _with(ONE, few), few, 1, f"{few} rows"),
        (k, TWO, k, 2, f"{k} rows, both with two 1s"),
        (k, ONE, 2 * k, 1, f"the {2 * k} rows it has in all"),
        (k, TWO, 2 * k, 2, f"{2 * k} rows, both with two 1s"),
        *((rows, name, rows, 1, f"{rows} rows") for rows, name in _refit_names(sizes).items()),
    )
    claims = []
    for num_rows, name, rows, ones, where in cases:
        found, wanted = runs[name].y[-1], baselines[_baseline(rows, ones)].y[0]
        who = "with exact refits and" if name.startswith(REFIT) else "with"
        text = f"sparse CCE {who} k = {num_rows} comes down to k-means of T* in {where}"
        above = (found + floor) / (wanted + floor) - 1
        numbers = f"{found:.3f}, {wanted:.3f}; as losses ‖XT − Y‖² {above:+.2%}"
        claims.append(Claim(text, found <= MARGIN * wanted, numbers))
    return tuple(claims)
