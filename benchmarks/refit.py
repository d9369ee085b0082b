"""What refits cost beside training, and what they gain: CPU seconds, memory and validation loss, in one process.

    python -m benchmarks.refit [--data FOLDER] [--seeds 1] [--quick]

MovieLens 1M and Anime (`ml1m.parquet`, `anime.parquet`): users and items in DeepFM and in GMF, one
column of 256 rows and four. Every model is trained, finalized and refitted with `rounds="auto"`. Memory is how far
resident memory rose above where the phase began. Needs pyarrow.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import cce
from benchmarks.real_sets import models
from benchmarks.real_sets.data import SETS, Rows, part_of, read_rows
from benchmarks.real_sets.ways import Job, fit, score
from benchmarks.side_by_side import PeakMemory, give_back_memory, keep
from cce.text import format_bytes, format_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

LR, COLUMNS, PASS_ROWS = 4e-3, (1, 4), 8192
HEADERS = ("data", "seed", "columns", "training, CPU s", "refits, CPU s", "ratio", "training, memory")


class DeepFM(models.DeepFM):
    """Without dense values."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__(sizes, 0)

    def forward(self, ids: Tensor, dense: Tensor | None = None) -> Tensor:
        return super().forward(ids, torch.zeros(len(ids), 0) if dense is None else dense)


class GMF(DeepFM):
    """The same without a network."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__(sizes)
        self.network = torch.nn.Identity()

    def forward(self, ids: Tensor, dense: Tensor | None = None) -> Tensor:
        del dense
        vectors = self.embedding(ids)
        output: Tensor = (vectors * self.first_order).sum((1, 2)) + vectors.prod(1).sum(1)
        return output


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CCE_DATA", "../shared/data")))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="few rows, nothing is kept")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    figures = []
    for name in ("ml1m", "anime"):
        num_rows = 20_000 if options.quick else None
        rows = part_of(read_rows(options.data, name), num_features=2, num_rows=num_rows)
        for make in (GMF, DeepFM):
            for seed in range(options.seeds):
                figures += measure(name, make, rows, seed)
    header = (*HEADERS, "refits, memory", "int8 rows", "finalized", "refitted")
    print(format_table(header, [_line(figure) for figure in figures], num_left=1))
    if not options.quick:
        print(keep("refit", figures))
    return figures


def measure(name: str, make: type[DeepFM], rows: Rows, seed: int) -> list[dict[str, Any]]:
    """One training, and the refits of each size after it."""
    torch.manual_seed(seed)
    model = make(rows.sizes)
    cce.compress(model, seed=seed)
    optimizer = cce.optim.Adam(model, lr=LR)
    training = _cost(lambda: fit(Job(rows, model, LR, SETS[name][0], served=0, seed=seed), optimizer))
    trained, before = score(model, rows, "validation"), {k: v.clone() for k, v in model.state_dict().items()}
    figures = []
    for columns in COLUMNS:
        fresh = make(rows.sizes)
        cce.compress(fresh, seed=seed)
        fresh.load_state_dict(before)
        cce.finalize(fresh, num_columns=columns, num_rows=256, seed=seed)
        finalized = score(fresh, rows, "validation")
        refits = _cost(lambda fresh=fresh: _refit(fresh, rows, seed))
        figure = {"data": f"{name}, {make.__name__}", "seed": seed, "columns": columns, "training": training}
        losses = {"int8_rows": trained, "finalized": finalized, "refitted": score(fresh, rows, "validation")}
        figures.append(figure | {"refits": refits, **losses})
    return figures


def _refit(model: DeepFM, rows: Rows, seed: int) -> cce.compression.Refitted:
    train = rows.parts["train"]
    ids, labels = rows.ids[train], rows.labels[train]

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        return zip(ids.split(PASS_ROWS), labels.split(PASS_ROWS), strict=True)

    return cce.refit(model, batches, validate=lambda: score(model, rows, "validation"), seed=seed, progress=False)


def _cost(work: Callable[[], object]) -> dict[str, float]:
    give_back_memory()
    cpu = time.process_time()
    with PeakMemory() as peak:
        work()
    return {"cpu_seconds": time.process_time() - cpu, "memory": peak.bytes}


def _line(figure: dict[str, Any]) -> tuple[str, ...]:
    training, refits = figure["training"], figure["refits"]
    seconds = training["cpu_seconds"], refits["cpu_seconds"]
    losses = (f"{figure[name]:.4f}" for name in ("int8_rows", "finalized", "refitted"))
    costs = f"{seconds[0]:.1f}", f"{seconds[1]:.1f}", f"{seconds[1] / seconds[0]:.2f}"
    memory = format_bytes(training["memory"]), format_bytes(refits["memory"])
    return figure["data"], str(figure["seed"]), str(figure["columns"]), *costs, *memory, *losses


if __name__ == "__main__":
    main()
