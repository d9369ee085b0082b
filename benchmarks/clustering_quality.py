"""Does a lower distortion give a lower loss? Ways to fit codebooks to the rows of one training, and what they score.

    python -m benchmarks.clustering_quality [--sets ml1m …] [--seeds 3] [--quick]

The DeepFM of `benchmarks.real_sets` is trained once on each set with int8 rows. All its tables then get codebooks of
one shape, fitted in each of the ways: starts, rows in the sample for each row of a codebook, and the least gain of an
iteration (0: to convergence, `MOST` iterations at most). Distortion is the squared error of all rows as a share of
their variance, weighted by how often ids occur; the loss is that of validation rows above the int8 rows'; seconds are
CPU time of one thread for the fits alone. Means of the seeds of the fits.
"""

from __future__ import annotations

import argparse
import os
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import torch

import cce
from benchmarks.real_sets.data import SETS, part_of, read_rows
from benchmarks.real_sets.models import DeepFM
from benchmarks.real_sets.tables import NAMES
from benchmarks.real_sets.ways import Job, fit, score
from benchmarks.side_by_side import keep
from cce.clustering import draw_weighted, kmeans
from cce.embeddings import CCEEmbedding, Codebooks
from cce.text import format_table

RATES = {"ml1m": 6e-3, "anime": 3e-3, "grocery_repeat": 3e-3}  # those of `real_sets`
SHAPES = ((1, 64), (1, 256), (4, 256))
LEAST_SAMPLE, MOST = 1 << 12, 100


class Way(NamedTuple):
    """How codebooks are fitted."""

    init: str
    points_per_row: int
    tol: float

    def __str__(self) -> str:
        return "as finalize does" if not self.init else f"{self.init}, {self.points_per_row} rows, tol {self.tol:g}"


WAYS = (
    Way("", 0, 0),
    Way("random", 64, 1e-2),
    Way("k-means++", 64, 1e-2),
    Way("k-means++", 64, 1e-3),
    Way("k-means++", 64, 0),
    Way("k-means++", 256, 1e-2),
    Way("k-means++", 256, 1e-3),
    Way("k-means++", 256, 0),
)


def codebooks(rows: Any, shape: tuple[int, int], way: Way, seed: int) -> Codebooks:
    """Codebooks of this shape, of no more rows than there are."""
    num_columns, num_rows = shape[0], min(shape[1], rows.num_points)
    generator = torch.Generator().manual_seed(seed)
    if not way.init:
        return rows.fit(num_columns, num_rows, generator=generator)  # type: ignore[no-any-return]
    num_points = max(way.points_per_row * num_rows, LEAST_SAMPLE)
    at, weights = draw_weighted(rows.weights, num_points, generator=generator)
    fits = [
        kmeans(
            piece.contiguous(),
            num_rows,
            init=way.init,
            sample_weight=weights,
            tol=way.tol,
            max_iter=MOST,
            generator=generator,
        )
        for piece in rows.points(at).chunk(num_columns, dim=1)
    ]
    return Codebooks(torch.stack([each.centroids for each in fits]), None, 0.0)


def measure(model: Any, tables: list[CCEEmbedding], shape: tuple[int, int], way: Way, seed: int) -> tuple[float, ...]:
    """Distortion, loss and seconds of one fit of all tables."""
    seconds, error, variance = 0.0, 0.0, 0.0
    with ExitStack() as trials:
        for table in tables:
            rows = table.trained_rows()
            started = time.process_time()
            found = codebooks(rows, shape, way, seed)
            seconds += time.process_time() - started
            compact = table.encode(rows, found)
            error, variance = error + compact.distortion * rows.mass, variance + rows.variance * rows.mass
            trials.enter_context(table.trying(compact))
        return error / variance, score(*model, "validation"), seconds


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CCE_DATA", "../shared/data")))
    parser.add_argument("--sets", nargs="+", default=list(RATES), choices=list(RATES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one set, 20,000 rows, one seed")
    options = parser.parse_args(argv)
    figures: list[dict[str, Any]] = []
    for name in options.sets[: 1 if options.quick else None]:
        rows = part_of(read_rows(options.data, name), num_rows=20_000 if options.quick else None)
        torch.manual_seed(0)
        model = DeepFM(rows.sizes, rows.dense.shape[1])
        cce.compress(model)
        lr = RATES[name]
        before = fit(Job(rows, model, lr, SETS[name][0], served=0, seed=0), cce.optim.Adam(model, lr=lr))
        tables = [each for each in model.modules() if isinstance(each, CCEEmbedding)]
        for shape in SHAPES:
            measure((model, rows), tables, shape, WAYS[0], 0)  # loops are compiled
            for way in WAYS:
                runs = [
                    measure((model, rows), tables, shape, way, seed)
                    for seed in range(1 if options.quick else options.seeds)
                ]
                distortion, loss, seconds = (mean(values) for values in zip(*runs, strict=True))
                spread = stdev(run[1] for run in runs) if len(runs) > 1 else 0.0
                figure = {"set": NAMES[name], "shape": list(shape), "way": str(way), "distortion": distortion}
                figures.append(figure | {"more": loss - before, "spread": spread, "seconds": seconds})
                print(*figures[-1].values(), flush=True)
    headers = ("set", "columns × rows", "start", "variance lost", "loss above rows", "±", "CPU s")
    lines = [
        (
            *(each["set"], "{} × {}".format(*each["shape"]), each["way"], f"{each['distortion']:.2%}"),
            *(f"{each['more']:+.5f}", f"{each['spread']:.5f}", f"{each['seconds']:.2f}"),
        )
        for each in figures
    ]
    print(format_table(headers, lines, num_left=3))
    if not options.quick:
        print(keep("clustering_quality", figures))
    return figures


if __name__ == "__main__":
    main()
