"""The cost of refits beside that of training: CPU seconds of an epoch, of a round on folds and of one on all rows.

python -m benchmarks.refit            # 2, 9 and 26 features, 500,000 rows
python -m benchmarks.refit --quick
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import cce
from benchmarks.side_by_side import keep
from cce.reclustering import cross_entropy
from cce.text import format_table

if TYPE_CHECKING:
    from collections.abc import Callable

NUM_IDS, DIM, BATCH = 30_000, 16, 2048
SIZES = [(2, 500_000), (9, 500_000), (26, 500_000)]
QUICK = [(2, 20_000), (9, 20_000)]


class Clicks:
    """Random rows; ids are as frequent as words are."""

    def __init__(self, num_features: int, num_rows: int) -> None:
        rng = np.random.default_rng(0)
        self.ids = torch.from_numpy((NUM_IDS ** rng.random((num_rows, num_features))).astype(np.int64))
        self.labels = torch.from_numpy(rng.integers(0, 2, num_rows).astype(np.float32))

    def __len__(self) -> int:
        return len(self.labels)

    def fetch(self, rows: np.ndarray) -> cce.Batch:
        return cce.Batch(torch.zeros(len(rows), 0), self.ids[rows], self.labels[rows])


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    _measure(2, 20_000)  # load what is compiled on disk
    figures = [_measure(*size) for size in (QUICK if options.quick else SIZES)]
    headers = ("features", "rows", "epoch, CPU s", "round on folds", "round on all rows", "run of 3 rounds, epochs")
    print(format_table(headers, [_row(figure) for figure in figures], num_left=0))
    if not options.quick:
        print(keep("refit", figures))
    return figures


def _measure(num_features: int, num_rows: int) -> dict[str, Any]:
    rows = Clicks(num_features, num_rows)
    schema = cce.Schema(tuple(cce.Feature(f"c{index}", NUM_IDS + 1) for index in range(num_features)))
    options = {"cce": {"num_columns": 4, "num_helpers": 0}}
    tables = cce.EmbeddingCollection(schema.vocabulary_sizes, DIM, method="cce", cap=4096, options=options, seed=0)
    model = cce.create_model("dlrm", schema, tables, top=(64, 32))
    refit = cce.Refit(model, rows, folds=3, spare_fold=True)
    epoch = _cpu_seconds(lambda: _train(model, rows))
    on_folds = [_cpu_seconds(lambda: refit.round(generator=torch.Generator().manual_seed(0))) for _ in range(2)]
    on_all = _cpu_seconds(lambda: refit.round(use_all_rows=True, generator=torch.Generator().manual_seed(1)))
    return {
        "num_features": num_features,
        "num_rows": num_rows,
        "epoch": epoch,
        "round_on_folds": on_folds[-1],  # the first starts without centroids
        "round_on_all_rows": on_all,
        "run_in_epochs": 1
        + 2 * (on_folds[-1] / epoch + 1 / 3)
        + on_all / epoch,  # a third of an epoch is the network's
    }


def _train(model: torch.nn.Module, rows: Clicks) -> None:
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    for numbers in np.array_split(np.arange(len(rows)), -(-len(rows) // BATCH)):
        batch = rows.fetch(numbers)
        optimizer.zero_grad()
        cross_entropy(model(batch), batch).mean().backward()
        optimizer.step()


def _cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _row(figure: dict[str, Any]) -> tuple[str, ...]:
    seconds = [f"{figure[name]:.1f}" for name in ("epoch", "round_on_folds", "round_on_all_rows", "run_in_epochs")]
    return f"{figure['num_features']}", f"{figure['num_rows']:,}", *seconds


if __name__ == "__main__":
    main()
