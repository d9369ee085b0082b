"""The cost of learning pointers beside that of training: codes, their clustering, refits, clusterings; seconds, bytes.

    python -m benchmarks.refit                       # 2, 9 and 26 features
    python -m benchmarks.refit --quick
    python -m benchmarks.refit --data runs/data      # prepared: anime, bookcrossing and criteo_dac80k, where they are

Without prepared sets, rows are random, with ids as frequent as words are. Tables are those of `cce train`: codes that
train and are clustered, tables that are refitted, and tables of clusterings (`--refits 0`) beside them. An epoch is one
of the latter. Parts take turns, and figures are medians. Bytes are what `Refit.nbytes` says of the largest group of
tables, and how far resident memory rose; every set has a process of its own.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import cce
from benchmarks.side_by_side import PeakMemory, give_back_memory, keep
from cce.reclustering import cross_entropy
from cce.text import format_bytes, format_table
from cce.training import TrainConfig, count_ids
from cce.training.building import SMALLEST_NBYTES, build_model, complete_config
from cce.training.optimizers import create_optimizers

if TYPE_CHECKING:
    from collections.abc import Callable

NUM_IDS, DIM, CAP, BATCH = 30_000, 16, 4096, 2048
SETS = {2: "anime", 9: "bookcrossing", 26: "criteo_dac80k"}  # by features
ROUNDS = 5  # of refits, in a run of `cce train`
PARTS = ("epoch", "epoch of codes", "clustering of codes", "round on folds", "round on all rows", "clustering")


@dataclass(frozen=True)
class Size:
    """What is measured, and how often."""

    num_features: int
    num_rows: int  # of random rows
    repeats: int
    folder: Path | None = None  # of a prepared set


SIZES = [Size(num_features, 500_000, repeats=3) for num_features in SETS]
QUICK = [Size(num_features, 20_000, repeats=1) for num_features in SETS]


class Clicks:
    """Random rows; ids are as frequent as words are."""

    def __init__(self, num_features: int, num_rows: int) -> None:
        rng = np.random.default_rng(0)
        self.ids = torch.from_numpy((NUM_IDS ** rng.random((num_rows, num_features))).astype(np.int64))
        self.labels = torch.from_numpy(rng.integers(0, 2, num_rows).astype(np.float32))
        self.schema = cce.Schema(tuple(cce.Feature(f"c{index}", NUM_IDS + 1) for index in range(num_features)))

    def __len__(self) -> int:
        return len(self.labels)

    def fetch(self, rows: np.ndarray) -> cce.Batch:
        return cce.Batch(torch.zeros(len(rows), 0), self.ids[rows], self.labels[rows])

    def counts(self) -> dict[str, torch.Tensor]:
        names = self.schema.vocabulary_sizes
        return {name: self.ids[:, index].bincount(minlength=NUM_IDS + 1) for index, name in enumerate(names)}


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", type=Path, help="folder of prepared sets by name")
    options = parser.parse_args(argv)
    figures = []
    for size in QUICK if options.quick else SIZES:
        folder = None if options.data is None else options.data / SETS[size.num_features]
        there = folder if folder is not None and folder.is_dir() else None
        placed = Size(size.num_features, size.num_rows, size.repeats, there)
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
            figures.append(fresh.submit(_measure, placed).result())  # memory that others freed would hide what it needs
    print(format_table(HEADERS, [_row(figure) for figure in figures], num_left=1))
    if not options.quick:
        print(keep("refit", figures))
    return figures


def _measure(size: Size) -> dict[str, Any]:
    torch.set_num_threads(1)
    _measure_parts(Size(size.num_features, 5_000, repeats=1))  # load what is compiled on disk
    return _measure_parts(size)


def _measure_parts(size: Size) -> dict[str, Any]:
    rows, schema, counts = _rows(size)
    has_network = size.num_features > 2  # two features are factorised, as in our recipes
    config, plain = (_config(schema, counts, has_network=has_network, refits=refits) for refits in (ROUNDS, 0))
    model, coded, clustered = (
        build_model(config, schema),
        build_model(config, schema, coded=True),
        build_model(plain, schema),
    )
    code_nbytes = sum(table.nbytes for table in coded.tables.tables.values())
    most = max(code_nbytes, SMALLEST_NBYTES)  # as in a run with codes
    refit = cce.Refit(model, rows, folds=2 + has_network, spare_fold=has_network, max_nbytes=most)
    g = torch.Generator().manual_seed(0)
    parts = {
        "epoch": lambda: _train(clustered, rows),
        "epoch of codes": lambda: _train(coded, rows),
        "clustering of codes": lambda: _cluster(coded, model, counts, g),
        "round on folds": lambda: refit.round(generator=g),
        "round on all rows": lambda: refit.round(use_all_rows=True, generator=g),
        "clustering": lambda: clustered.tables.cluster(generator=g),
    }
    for name in ("round on folds", "clustering"):
        parts[name]()  # the first starts without centroids
    runs = [{name: _cost(work) for name, work in parts.items()} for _ in range(size.repeats)]
    measures = {
        measure: {name: statistics.median(run[name][measure] for run in runs) for name in PARTS}
        for measure in ("cpu_seconds", "wall_seconds", "memory_above")
    }
    return {
        "data": "random" if size.folder is None else size.folder.name,
        "num_features": size.num_features,
        "num_rows": len(rows),
        "model": "dlrm" if has_network else "gmf",
        "repeats": size.repeats,
        **measures,
        "epochs_of_a_run": _epochs_of_a_run(measures["cpu_seconds"], network_share=1 / 3 if has_network else 0.0),
        "code_nbytes": code_nbytes,
        "refit_nbytes": max(sum(map(refit.nbytes, group)) for group in refit.groups),
        "max_nbytes": refit.max_nbytes,
        "table_nbytes": model.tables.nbytes,
        "clustered_table_nbytes": clustered.tables.nbytes,
    }


def _rows(size: Size) -> tuple[Any, cce.Schema, dict[str, torch.Tensor]]:
    """Rows by number, their schema, and how often each id occurs."""
    if size.folder is None:
        clicks = Clicks(size.num_features, size.num_rows)
        return clicks, clicks.schema, clicks.counts()
    data = cce.PreparedData.open(size.folder)
    return data.rows("train"), data.schema, count_ids(data)


def _config(schema: cce.Schema, counts: dict[str, torch.Tensor], *, has_network: bool, refits: int) -> TrainConfig:
    """A run of `cce train`."""
    config = TrainConfig(
        data="",
        model="dlrm" if has_network else "gmf",
        model_options={"bottom": [64], "top": [64, 32]} if has_network else {},
        embedding_dim=DIM,
        cap=CAP,
        refits=refits,
    )
    return complete_config(config, schema.vocabulary_sizes, lambda: counts)


def _train(model: torch.nn.Module, rows: Any) -> None:
    optimizers = create_optimizers("adam", model, lr=0.003)
    for numbers in np.array_split(np.arange(len(rows)), -(-len(rows) // BATCH)):
        batch = rows.fetch(numbers)
        for optimizer in optimizers:
            optimizer.zero_grad()
        cross_entropy(model(batch), batch).mean().backward()
        for optimizer in optimizers:
            optimizer.step()


def _cluster(
    coded: torch.nn.Module, model: torch.nn.Module, counts: dict[str, torch.Tensor], g: torch.Generator
) -> None:
    """Let the tables of `model` be as near to the codes as they get, as `cce train` does after the last epoch."""
    for name, codes in coded.tables.tables.items():
        if type(codes) is not type(model.tables.tables[name]):
            model.tables.tables[name].fit_where_it_counts(codes.to_dense, counts[name], generator=g)


def _cost(work: Callable[[], object]) -> dict[str, float]:
    gc.collect()
    give_back_memory()
    wall, cpu = time.perf_counter(), time.process_time()
    with PeakMemory() as peak:
        work()
    seconds = {"cpu_seconds": time.process_time() - cpu, "wall_seconds": time.perf_counter() - wall}
    return seconds | {"memory_above": peak.bytes}


def _epochs_of_a_run(seconds: dict[str, float], *, network_share: float) -> dict[str, float]:
    """A run of one epoch, in epochs; between rounds the network is trained on its share of the rows."""
    codes = (seconds["epoch of codes"] + seconds["clustering of codes"]) / seconds["epoch"]
    rounds = (ROUNDS - 1) * seconds["round on folds"] + seconds["round on all rows"]
    refits = rounds / seconds["epoch"] + (ROUNDS - 1) * network_share
    return {
        "codes": codes,
        "codes and refits": codes + refits,
        "clusterings": 1 + 2 * seconds["clustering"] / seconds["epoch"],
    }


HEADERS = (
    *("data", "features", "rows", *(f"{part}, CPU s" for part in PARTS)),
    *("run of codes, epochs", f"with {ROUNDS} rounds", "of 2 clusterings"),
    *("Refit.nbytes", *(f"{part}, memory" for part in PARTS)),
)


def _row(figure: dict[str, Any]) -> tuple[str, ...]:
    seconds = [f"{figure['cpu_seconds'][part]:.2f}" for part in PARTS]
    memory = [format_bytes(figure["memory_above"][part]) for part in PARTS]
    sizes = f"{figure['num_features']}", f"{figure['num_rows']:,}"
    runs = [f"{epochs:.1f}" for epochs in figure["epochs_of_a_run"].values()]
    return figure["data"], *sizes, *seconds, *runs, format_bytes(figure["refit_nbytes"]), *memory


if __name__ == "__main__":
    main()
