"""Shuffled batches from disk: rows a second and core, beside columns in files of their own and torch's DataLoader.

    python -m benchmarks.loader [--quick]

A data set of Criteo's shape, 13 dense and 26 categorical features. Seconds are CPU seconds of one thread; files are in
the page cache. `columns` gathers each column by itself, with the order given: what a file a column would cost.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.side_by_side import keep
from cce.data import EpochShuffle, PreparedData, SyntheticConfig, prepare_synthetic
from cce.text import format_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZES = (*[100_000] * 8, *[20_000] * 9, *[200] * 9)  # a third of the features each in 4, 2 and 1 bytes


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(argv)
    num_rows, rounds = (10_000, 1) if options.quick else (3_000_000, 5)
    threads = torch.get_num_threads()
    figures = []
    try:
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as folder:
            config = SyntheticConfig(num_rows=num_rows, vocabulary_sizes=SIZES, num_dense=13)
            prepare_synthetic(Path(folder) / "data", config, progress=False)
            data = PreparedData.open(Path(folder) / "data")
            for batch_size in (128, 2048, 16_384):
                figures += _measure(data, batch_size, rounds)
    finally:
        torch.set_num_threads(threads)
    rows = [(f["way"], f"{f['batch_size']:,}", f"{f['rows_per_second'] / 1e6:.2f}") for f in figures]
    print(format_table(("way", "batch", "M rows/s"), rows))
    if not options.quick:
        print(keep("loader", figures))
    return figures


def _measure(data: PreparedData, batch_size: int, rounds: int) -> list[dict[str, Any]]:
    """The best of several epochs, the ways taking turns; one epoch of the DataLoader, on a tenth of the rows."""
    loader = data.loader("train", batch_size=batch_size)
    columns = _columns(data)
    ways: dict[str, Callable[[], Iterator[Any]]] = {
        "cce": lambda: iter(loader),
        "columns": lambda: _by_columns(columns, data.num_rows("train"), batch_size),
        "DataLoader": lambda: iter(_data_loader(data, batch_size)),
    }
    best = dict.fromkeys(ways, 0.0)
    for number in range(rounds):
        for way, batches in ways.items():
            if way != "DataLoader" or number == 0:
                best[way] = max(best[way], _rows_per_second(batches()))
    return [{"way": way, "batch_size": batch_size, "rows_per_second": speed} for way, speed in best.items()]


def _rows_per_second(batches: Iterator[Any]) -> float:
    started, count = time.process_time(), 0
    for batch in batches:
        count += len(batch[0]) if isinstance(batch, (tuple, list)) else len(batch)
    return count / (time.process_time() - started)


def _columns(data: PreparedData) -> list[np.ndarray]:
    """Each column in memory by itself."""
    records = np.fromfile(data.path / "train.rows", data.rows("train")._dtype)
    ids = [np.ascontiguousarray(records[f"id{index}"]) for index in range(len(SIZES))]
    dense = [np.ascontiguousarray(records["dense"][:, index]) for index in range(13)]
    return [*ids, *dense, np.ascontiguousarray(records["label"])]


def _by_columns(columns: list[np.ndarray], num_rows: int, batch_size: int) -> Iterator[tuple[torch.Tensor, ...]]:
    order = EpochShuffle(num_rows, seed=0, epoch=0)
    for start in range(0, num_rows, batch_size):
        rows = order.rows(start, min(start + batch_size, num_rows))
        ids, dense = np.empty((len(rows), 26), np.int64), np.empty((len(rows), 13), np.float32)
        for index in range(26):
            ids[:, index] = columns[index].take(rows)
        for index in range(13):
            dense[:, index] = columns[26 + index].take(rows)
        yield torch.from_numpy(ids), torch.from_numpy(dense), torch.from_numpy(columns[39].take(rows))


def _data_loader(data: PreparedData, batch_size: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    batch = next(iter(data.loader("test", batch_size=data.num_rows("test"), shuffle=False)))
    return DataLoader(TensorDataset(batch.ids, batch.dense, batch.labels), batch_size=batch_size, shuffle=True)


if __name__ == "__main__":
    main()
