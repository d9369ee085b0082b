"""Rows that hold pointers beside rows that hold ids: bytes on disk and in the model, and rows a second.

    python -m benchmarks.baked FOLDER …         # data sets made by `cce prepare`, such as MovieLens; figures are kept
    python -m benchmarks.baked [--quick]        # a synthetic one, or a small one

For each data set, tables of `cce` with 4 and 8 columns: as refits leave them, and with a helper, as clusterings do.
Pointers are random: what they are changes neither bytes nor the work. A model of two features (`gmf`) or more (`mlp`)
reads shuffled batches of 4,096 rows: loads them, scores them, or takes a step of Adam. Seconds are CPU seconds of one
thread, in turns; files are in the page cache.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional

import cce
from benchmarks.side_by_side import keep
from cce.collection import bake_model, bake_schema, find_words
from cce.data import PreparedData, SyntheticConfig, prepare_baked, prepare_synthetic
from cce.text import format_bytes, format_table

if TYPE_CHECKING:
    from collections.abc import Callable

DIM, BATCH, COMPRESSION = 16, 4096, 10
TABLES: dict[str, dict[str, Any]] = {
    "refitted": {"num_helpers": 0, "max_rows": 256},  # what `cce train` makes
    "clustered": {},  # with a helper
}
WORK = ("load", "score", "train")
HEADERS = ("data", "tables", "columns", "row, ids", "baked", "model, ids", "baked", *(f"{work} ×" for work in WORK))


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(argv)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as folder:
            sets = [PreparedData.open(path) for path in options.data] or [_synthetic(Path(folder), quick=options.quick)]
            choices = [(data, tables, columns) for data in sets for tables in TABLES for columns in (4, 8)]
            figures = [
                _measure(*choice, Path(folder) / f"baked-{number}", rounds=2 if options.quick else 15)
                for number, choice in enumerate(choices)
            ]
    finally:
        torch.set_num_threads(threads)
    print(format_table(HEADERS, [_row(figure) for figure in figures], num_left=2))
    if options.data and not options.quick:
        print(keep("baked", figures))
    return figures


def _synthetic(folder: Path, *, quick: bool) -> PreparedData:
    rows, sizes = (10_000, (2_000, 500)) if quick else (1_000_000, (1_000_000, 200_000))
    prepare_synthetic(folder / "data", SyntheticConfig(num_rows=rows, vocabulary_sizes=sizes), progress=False)
    return PreparedData.open(folder / "data")


def _measure(data: PreparedData, tables: str, columns: int, out: Path, *, rounds: int) -> dict[str, Any]:
    model = _model(data, tables, columns)
    schema = bake_schema(model, data.schema)

    def words(index: int, ids: np.ndarray) -> np.ndarray:
        return find_words(model, schema, index, torch.from_numpy(ids.astype(np.int64))).numpy()

    prepare_baked(data, out, schema, words, run={}, progress=False)
    pairs = {"ids": (data, model), "baked": (PreparedData.open(out), bake_model(model, schema))}
    return {
        "data": data.path.name,
        "tables": tables,
        "columns": columns,
        "rows": [feature.pointers.num_rows for feature in schema.features if feature.pointers is not None],
        "row_bytes": {way: len(each.rows("train")._bytes[0]) for way, (each, _) in pairs.items()},
        "model_bytes": {way: cce.summary(each).nbytes for way, (_, each) in pairs.items()},
        "rows_per_second": {work: _speeds(pairs, work, rounds) for work in WORK},
    }


def _model(data: PreparedData, tables: str, columns: int) -> torch.nn.Module:
    collection = cce.EmbeddingCollection(
        data.schema.vocabulary_sizes,
        DIM,
        method="cce",
        budget=cce.Budget(compression=COMPRESSION),
        options={"cce": {"num_columns": columns} | TABLES[tables]},
        seed=0,
    )
    return cce.create_model("gmf" if len(data.schema.features) == 2 else "mlp", data.schema, collection)


def _speeds(pairs: dict[str, tuple[PreparedData, torch.nn.Module]], work: str, rounds: int) -> dict[str, float]:
    """Rows a CPU second of both ways, which take turns: medians over turns of 25 batches."""
    runs = {way: _worker(*pair, work) for way, pair in pairs.items()}
    speeds: dict[str, list[float]] = {way: [] for way in runs}
    for number in range(1 + rounds):
        for way, run in runs.items():
            start = time.process_time()
            num_rows = run()
            if number:
                speeds[way].append(num_rows / (time.process_time() - start))
    return {way: statistics.median(values) for way, values in speeds.items()}


def _worker(data: PreparedData, model: torch.nn.Module, work: str) -> Callable[[], int]:
    loader = data.loader("train", batch_size=BATCH)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)

    def run() -> int:
        num_rows = 0
        for batch in islice(iter(loader), 25):
            num_rows += len(batch)
            if work == "score":
                with torch.no_grad():
                    model(batch)
            elif work == "train":
                optimizer.zero_grad()
                functional.binary_cross_entropy_with_logits(model(batch), batch.labels).backward()
                optimizer.step()
        return num_rows

    return run


def _row(figure: dict[str, Any]) -> tuple[str, ...]:
    sizes = [str(size) for size in figure["row_bytes"].values()]
    held = [format_bytes(size) for size in figure["model_bytes"].values()]
    speeds = [f"{speed['baked'] / speed['ids']:.2f}" for speed in figure["rows_per_second"].values()]
    return figure["data"], figure["tables"], str(figure["columns"]), *sizes, *held, *speeds


if __name__ == "__main__":
    main()
