"""A training step of 26 tables of 1,000 to 2.3 million ids as int8 rows, beside full tables under torch's optimizers.

    python -m benchmarks.int8_rows [--quick] [--rounds 15]

A step is a lookup of one batch, its backward pass and the step of the optimizer, in CPU time of one thread. All
ids that occur have rows. Every candidate has tables of its own; all take turns.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn, optim

import cce
from benchmarks.side_by_side import keep, medians
from benchmarks.traffic import draw_batch
from cce.text import format_table

if TYPE_CHECKING:
    from collections.abc import Callable

DIM, NUM_TABLES = 16, 26
SMALLEST, LARGEST = 1_000, 2_300_000
NUM_BATCHES = 8  # that take turns, so that rows are not all in the cache


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    largest, rounds = (20_000, 3) if options.quick else (LARGEST, options.rounds)
    sizes = tuple(round(SMALLEST * (largest / SMALLEST) ** (i / (NUM_TABLES - 1))) for i in range(NUM_TABLES))
    figures: list[dict[str, Any]] = []
    for batch in (128,) if options.quick else (128, 2048, 16_384):
        candidates = {
            "nn.Embedding(sparse), SparseAdam": _torch_tables(sizes, optim.SparseAdam),
            "nn.Embedding(sparse), SGD": _torch_tables(sizes, optim.SGD),
            "cce int8 rows, cce.optim.Adam": _int8_rows(sizes),
        }
        generator = torch.Generator().manual_seed(0)
        batches = [draw_batch("zipf", sizes, batch, generator) for _ in range(NUM_BATCHES)]
        grad = torch.randn(batch, NUM_TABLES, DIM, generator=generator)
        steps = {name: partial(_take_turns, step, batches, grad) for name, step in candidates.items()}
        seconds = medians(steps, rounds=rounds, clock=time.thread_time)
        first = next(iter(seconds.values()))
        figures += [
            {"tables": name, "batch": batch, "us": 1e6 * each / NUM_BATCHES, "share": each / first}
            for name, each in seconds.items()
        ]
    rows = [(each["tables"], f"{each['batch']:,}", f"{each['us']:,.0f}", f"{each['share']:.2f}") for each in figures]
    print(format_table(("tables", "batch", "us a step", "of the first"), rows))
    if not options.quick:
        print(keep("int8_rows", figures))
    return figures


def _take_turns(step: Callable[[Tensor, Tensor], None], batches: list[Tensor], grad: Tensor) -> None:
    for ids in batches:
        step(ids, grad)


def _int8_rows(sizes: tuple[int, ...]) -> Callable[[Tensor, Tensor], None]:
    features = {f"C{index}": size for index, size in enumerate(sizes)}
    tables = cce.EmbeddingCollection(features, DIM, options={"cce": {"min_count": 1}}, seed=0)
    optimizer = cce.optim.Adam(tables, lr=1e-3)

    def step(ids: Tensor, grad: Tensor) -> None:
        optimizer.zero_grad()
        tables(ids).backward(grad)
        optimizer.step()

    return step


def _torch_tables(sizes: tuple[int, ...], kind: Any) -> Callable[[Tensor, Tensor], None]:
    tables = nn.ModuleList(nn.Embedding(size, DIM, sparse=True) for size in sizes)
    optimizer = kind(tables.parameters(), lr=1e-3)

    def step(ids: Tensor, grad: Tensor) -> None:
        optimizer.zero_grad()
        vectors = torch.stack([table(column) for table, column in zip(tables, ids.unbind(1), strict=True)], dim=1)
        vectors.backward(grad)
        optimizer.step()

    return step


if __name__ == "__main__":
    main()
