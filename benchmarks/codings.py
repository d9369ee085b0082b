"""Would rows take fewer bytes in another form, at equal validation loss? Emulated: coded, decoded, put back in full.

    python -m benchmarks.codings [--data FOLDER] [--sets ml1m anime ...]

The DeepFM of `benchmarks.real_sets` trains once with int8 rows. Every form gives each table some options, each of so
many bytes and with a squared error, weighted by how often ids occur; tables share a budget as in `cce.finalize`, and
validation scores a rising list of budgets. The table says how many times fewer bytes a form takes than pointers and
codebooks of float32, the present form, at equal loss: the geometric mean over `LOSSES` above that of the rows. Sets are
added to the record. Test rows are never read.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import cce
from benchmarks.real_sets.data import SETS, Rows, read_rows
from benchmarks.real_sets.models import DIM, DeepFM
from benchmarks.real_sets.tables import NAMES
from benchmarks.real_sets.ways import Job, fit, score
from benchmarks.side_by_side import RESULTS, keep
from cce.clustering import draw_weighted, kmeans, nearest_centroid
from cce.compression import allocate
from cce.indexing import pointer_nbytes

RATES = {"ml1m": 6e-3, "tennis": 6e-3, "debian_deps": 6e-3, "grocery_repeat": 6e-3}  # 3e-3 for the others
SHAPES = [(1, k) for k in (2, 4, 16, 64, 256, 1024, 4096)] + [(2, 64), (2, 256), (2, 1024), (4, 64), (4, 256)]
LEVELS = (4, 8, 16, 32, 64)  # of single values, with a column for each
RESIDUAL = ((2, 16), (2, 64), (2, 256), (2, 1024), (3, 256), (4, 256))
HOT = (1 / 256, 1 / 64, 1 / 16, 1 / 4)  # share of the rows that stay int8 rows
COUNTS = (4, 16, 64)  # where groups of ids begin
SAMPLED = 200_000  # training rows, for curvature
LOSSES = (0.0003, 0.0005, 0.0007, 0.001, 0.0014, 0.002, 0.003)
VISIBLE = 0.0005  # a loss that is no noise
STEP, POWER = 1.25, 1.5  # from one budget to the next; of the error, with which the loss grows
RECORD = RESULTS / "codings.json"


class Coded(NamedTuple):
    """One way to store the rows of a table."""

    decode: Callable[[], Tensor]
    nbytes: int
    error: float


class Points:
    """Rows of a table, or some of them, each weighted by how often its id occurs; fits and codes are kept.

    metric: `(DIM, DIM)`, by which errors are measured; the identity, unless told.
    """

    def __init__(self, values: Tensor, weights: Tensor, metric: Tensor | None = None) -> None:
        self.values, self.weights = values, weights
        self.metric = torch.eye(DIM, dtype=torch.float64) if metric is None else metric
        self._fits: dict[Any, Any] = {}

    def error(self, decoded: Tensor) -> float:
        """The weighted squared error."""
        differences = (self.values - decoded) @ root_of(self.metric)
        return float((differences.square().sum(1).double() * self.weights).sum())

    def code(self, columns: int, num_rows: int) -> list[tuple[Tensor, Tensor]]:
        """The codebook and the pointers of each column."""
        if (columns, num_rows) not in self._fits:
            self._fits[columns, num_rows] = []
            for place, at in enumerate(torch.arange(DIM).chunk(columns)):
                root = root_of(self.metric[at][:, at])
                points = self.values[:, at] @ root
                book = self._fit(points, num_rows, (columns, place))
                codes = nearest_centroid(points, book).int()
                self._fits[columns, num_rows].append((torch.linalg.solve(root, book, left=False), codes))
        return self._fits[columns, num_rows]  # type: ignore[no-any-return]

    def code_residuals(self, stages: int, num_rows: int) -> list[tuple[Tensor, Tensor]]:
        """The same with codebooks as wide as rows, each of what those before it leave over."""
        left, found = self.values, []
        for stage in range(stages):
            book = self._fit(left, num_rows, ("stage", num_rows, stage))
            found.append((book, nearest_centroid(left, book).int()))
            left = left - book[found[-1][1].long()]
        return found

    def _fit(self, points: Tensor, num_rows: int, key: tuple[Any, ...]) -> Tensor:
        """k-means that begins at the centroids of a fit with a fourth of the rows, and points drawn by weight."""
        if (*key, "fit", num_rows) not in self._fits:
            draw = torch.Generator().manual_seed(0)
            at, weights = draw_weighted(self.weights, max(64 * num_rows, 4096), generator=draw)
            init = points[at[torch.randint(len(at), (num_rows,), generator=draw)]]
            if num_rows >= 16:
                init[: num_rows // 4] = self._fit(points, num_rows // 4, key)
            fitted = kmeans(points[at].contiguous(), num_rows, init=init, sample_weight=weights, tol=1e-2)
            self._fits[*key, "fit", num_rows] = fitted.centroids
        return self._fits[*key, "fit", num_rows]  # type: ignore[no-any-return]


def root_of(metric: Tensor) -> Tensor:
    """The symmetric root; a direction counts for a thousandth of the largest one at least."""
    values, vectors = torch.linalg.eigh(metric)
    return ((vectors * values.clamp(min=1e-3 * float(values.max())).sqrt()) @ vectors.T).float()


def rounded(book: Tensor) -> Tensor:
    """As int8 times a scale."""
    scale = book.abs().max() / 127
    return (book / scale).round() * scale


def pointed(points: Points, itemsize: int, shapes: list[tuple[int, int]] = SHAPES) -> Iterator[Coded]:
    """Pointers and codebooks; with a column for each value, levels of it."""
    for columns, num_rows in [*shapes, *product((DIM,), LEVELS)]:
        nbytes = pointer_nbytes(len(points.values), columns, num_rows) + num_rows * DIM * itemsize
        if num_rows <= len(points.values) and nbytes <= points.values.numel():

            def decode(columns: int = columns, num_rows: int = num_rows) -> Tensor:
                found = points.code(columns, num_rows)
                return torch.cat([(book if itemsize == 4 else rounded(book))[rows.long()] for book, rows in found], 1)

            yield Coded(decode, nbytes, points.error(decode()))


def residual(points: Points, itemsize: int) -> Iterator[Coded]:
    """Sums of rows, one of each codebook."""
    yield from pointed(points, itemsize)
    for stages, num_rows in RESIDUAL:
        nbytes = pointer_nbytes(len(points.values), stages, num_rows) + stages * num_rows * DIM * itemsize
        if num_rows <= len(points.values) and nbytes <= points.values.numel():

            def decode(stages: int = stages, num_rows: int = num_rows) -> Tensor:
                found = points.code_residuals(stages, num_rows)
                return sum((book if itemsize == 4 else rounded(book))[rows.long()] for book, rows in found)  # type: ignore[return-value]

            yield Coded(decode, nbytes, points.error(decode()))


def hot_rows(points: Points, itemsize: int) -> Iterator[Coded]:
    """int8 rows for the most frequent ids, which four bytes or a bit set name, and pointers for the others."""
    yield from pointed(points, itemsize)
    order = points.weights.argsort(descending=True)
    for hot, rest in ((order[:n], order[n:]) for n in (int(share * len(order)) for share in HOT) if n):
        index = min(4 * len(hot), len(order) // 8 * 9 // 8)
        others = Points(points.values[rest], points.weights[rest])
        for coded in pointed(others, itemsize, [shape for shape in SHAPES if shape[1] <= 1024]):

            def decode(coded: Coded = coded, rest: Tensor = rest) -> Tensor:
                return points.values.index_copy(0, rest, coded.decode())

            yield Coded(decode, coded.nbytes + DIM * len(hot) + index, coded.error)


def groups(points: Points, itemsize: int) -> Iterator[Coded]:
    """Codebooks of its own for each group of ids by count, in shapes that are best together; two bits say which."""
    yield from pointed(points, itemsize)
    group = torch.bucketize(points.weights, torch.tensor(COUNTS), right=True)
    places = [own for own in (torch.nonzero(group == number).squeeze(1) for number in range(4)) if len(own)]
    parts = [list(pointed(Points(points.values[own], points.weights[own]), itemsize)) for own in places]
    if not all(parts):
        return
    most = max(each.error for part in parts for each in part)
    picks = {
        tuple(min(range(len(part)), key=lambda i: part[i].error + price * part[i].nbytes) for part in parts)
        for price in (most * 2.0**-power for power in range(40))
    }
    for pick in sorted(picks):
        chosen = [part[index] for part, index in zip(parts, pick, strict=True)]

        def decode(chosen: list[Coded] = chosen) -> Tensor:
            decoded = torch.empty_like(points.values)
            for own, each in zip(places, chosen, strict=True):
                decoded[own] = each.decode()
            return decoded

        nbytes = sum(each.nbytes for each in chosen) + len(points.values) // 4
        yield Coded(decode, nbytes, sum(each.error for each in chosen))


BY_CURVATURE = "errors by curvature"
FORMS: dict[str, tuple[Callable[[Points, int], Iterator[Coded]], int]] = {
    "present": (pointed, 4),
    "int8 codebooks": (pointed, 1),
    "residuals": (residual, 4),
    "residuals, int8 codebooks": (residual, 1),
    "int8 rows for hot ids": (hot_rows, 4),
    "codebooks by frequency": (groups, 4),
    BY_CURVATURE: (pointed, 4),
}


class Trained:
    """A model whose tables are full, with the rows that it trained as int8."""

    def __init__(self, rows: Rows, lr: float, epochs: int) -> None:
        torch.manual_seed(0)
        self.rows, self.model = rows, DeepFM(rows.sizes, rows.dense.shape[1])
        cce.compress(self.model)
        fit(Job(rows, self.model, lr, epochs, served=0, seed=0), cce.optim.Adam(self.model, lr=lr))
        self.ids: dict[int, Tensor] = {}
        self.points: dict[int, Points] = {}
        tables, self.fixed_nbytes = self.model.embedding.tables, 0
        for index, table in enumerate(tables):
            if isinstance(table, cce.embeddings.CCEEmbedding):
                trained, full = table.trained_rows(), torch.nn.Embedding(table.num_embeddings, DIM)
                everything = torch.arange(trained.num_points)
                self.ids[index] = torch.cat(list(table.row_map.ids()))
                self.points[index] = Points(trained.points(everything), trained.weights[everything].float())
                self.fixed_nbytes += table.row_map.nbytes
                torch.nn.init.zeros_(full.weight)
                tables[index] = full
            self.fixed_nbytes += 0 if index in self.ids else table.weight.nbytes
        self.loss = self.score({})

    def score(self, decoded: dict[int, Tensor]) -> float:
        """The validation loss with these rows of some tables, and the trained ones of the others."""
        for index, points in self.points.items():
            self.model.embedding.tables[index].weight.data[self.ids[index]] = decoded.get(index, points.values)
        return score(self.model, self.rows, "validation")

    def curved(self) -> dict[int, Points]:
        """The rows, whose errors are measured by the mean Gauss–Newton Hessian of a table's vectors."""
        held: list[Tensor] = []

        def detach(_: torch.nn.Module, __: object, output: Tensor) -> Tensor:
            held.append(output.detach().requires_grad_())
            return held[-1]

        hook, hessians = self.model.embedding.register_forward_hook(detach), dict.fromkeys(self.points, torch.zeros(()))
        train = self.rows.parts["train"]
        for some in train[torch.randperm(len(train))[:SAMPLED]].split(8192):
            logits = self.model(self.rows.ids[some], self.rows.dense[some])
            (slopes,) = torch.autograd.grad(logits.sum(), held.pop())
            chances = logits.detach().sigmoid()
            slopes = slopes * (chances * (1 - chances)).sqrt()[:, None, None]
            for index in hessians:
                hessians[index] = hessians[index] + slopes[:, index].T.double() @ slopes[:, index].double()
        hook.remove()
        return {index: Points(own.values, own.weights, hessians[index]) for index, own in self.points.items()}

    def probe(self, options: dict[int, list[Coded]]) -> dict[int, float]:
        """What a table's error costs: by the option that loses so little that it is just no noise, as in `finalize`."""
        costs = {}
        for index, own in options.items():
            loss, error, most = 0.0, 1.0, max(each.error for each in own)
            for wanted in (most / 8, most / 3, most):
                near = min(own, key=lambda each: abs(math.log(max(each.error, 1e-30) / wanted)))
                loss, error = self.score({index: near.decode()}) - self.loss, near.error
                if loss > VISIBLE:
                    break
            costs[index] = max(loss, VISIBLE / 100) / error**POWER
        return costs

    def curve(self, options: dict[int, list[Coded]], costs: dict[int, float]) -> list[tuple[int, float]]:
        """Bytes, and validation losses above that of the rows, until nothing is lost."""
        priced = {
            str(index): [each._replace(error=costs[index] * each.error**POWER) for each in own]
            for index, own in options.items()
        }
        most, found = sum(points.values.numel() for points in self.points.values()), {}
        budget = 1.3 * sum(min(each.nbytes for each in own) for own in options.values())
        while budget < 1.1 * most and min(found.values(), default=1.0) > LOSSES[0] / 2:
            chosen = allocate(priced, int(budget))  # type: ignore[arg-type]
            nbytes = self.fixed_nbytes + sum(each.nbytes for each in chosen.values())
            if nbytes not in found:
                decoded = {int(index): each.decode() for index, each in chosen.items()}  # type: ignore[attr-defined]
                found[nbytes] = self.score(decoded) - self.loss
            budget *= STEP
        return sorted(found.items())


def nbytes_at(curve: list[tuple[int, float]], loss: float) -> float:
    """Bytes at which a curve first has at most this loss, interpolated."""
    for (fewer, worse), (more, better) in zip([curve[0], *curve], curve, strict=False):
        if better <= loss:
            share = (worse - loss) / (worse - better) if worse > loss else 1.0
            return float(math.exp((1 - share) * math.log(fewer) + share * math.log(more)))
    return math.nan


def compare(rows: Rows, lr: float, epochs: int) -> dict[str, Any]:
    """The curves of all forms."""
    trained = Trained(rows, lr, epochs)
    costs: dict[int, float] = {}
    found: dict[str, Any] = {}
    for name, (form, itemsize) in FORMS.items():
        tables = trained.curved() if name == BY_CURVATURE else trained.points
        options = {index: list(form(points, itemsize)) for index, points in tables.items()}
        costs = trained.probe(options) if not costs or name == BY_CURVATURE else costs
        found[name] = trained.curve(options, costs)
        print(name, *(f"{nbytes_at(found[name], loss) / 1e3:.1f} kB" for loss in LOSSES), flush=True)
    return found


def ratio(curves: dict[str, Any], form: str) -> float:
    """How many times fewer bytes than the present form, the geometric mean over losses."""
    both = [(nbytes_at(curves["present"], loss), nbytes_at(curves[form], loss)) for loss in LOSSES]
    logs = [math.log(present / own) for present, own in both if present == present and own == own]
    return math.exp(sum(logs) / len(logs))


def table_of(figures: dict[str, Any]) -> str:
    """All sets and forms, as docs/notes.md has them."""
    forms = list(FORMS)[1:]
    lines = [f"| times fewer bytes | {' | '.join(forms)} |", "|---|" + "--:|" * len(forms)]
    lines += [
        f"| {NAMES[name]} | {' | '.join(f'{ratio(figures[name], form):.2f}' for form in forms)} |"
        for name in NAMES
        if name in figures
    ]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CCE_DATA", "../shared/data")))
    parser.add_argument("--sets", nargs="*", choices=NAMES, default=list(NAMES), metavar="SET")
    options = parser.parse_args(argv)
    for name in options.sets:
        found = compare(read_rows(options.data, name), RATES.get(name, 3e-3), SETS[name][0])
        stored = json.loads(RECORD.read_text())["figures"] if RECORD.exists() else {}
        keep("codings", stored | {name: found})
    print(table_of(json.loads(RECORD.read_text())["figures"]))


if __name__ == "__main__":
    main()
