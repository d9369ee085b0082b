"""Lookups and training steps of open tables, whose ids are any 64-bit integers, beside those of bounded ids.

    python -m benchmarks.open_ids [--quick] [--rounds 31]

One table of 100,000 to 100 million ids that all have rows (which takes 8 GB), and 26 tables of 1,000 to 2.3 million.
A batch is looked up in CPU time of one thread; a step is a lookup, its backward pass and the optimizer's step. Ids are
not numbered by count; those of open tables are hashes of the others'. Last, what an id with a row costs beside its row.
"""

from __future__ import annotations

import argparse
import gc
import time
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import cce
from benchmarks.side_by_side import keep, medians
from benchmarks.traffic import draw_batch
from cce.indexing import scramble
from cce.text import format_table

if TYPE_CHECKING:
    from collections.abc import Callable

DIM, NUM_BATCHES = 16, 8
STRIDE = 1_000_003  # between the ids of one rank and the next, a prime: frequent ids are not neighbours
MANY = tuple(round(1_000 * 2_300 ** (i / 25)) for i in range(26))


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    sizes = [(20_000,), (1_000, 20_000)] if options.quick else [(10**5,), (10**6,), (10**7,), MANY, (10**8,)]
    figures = []
    for of in sizes:
        figures += _compare(of, 3 if options.quick else options.rounds)
        gc.collect()  # tables are part of cycles
    headers = ("tables", "ids", "batch", "what", "bounded us", "open us", "ratio", "bytes an id")
    print(format_table(headers, [_row(each) for each in figures], num_left=1))
    if not options.quick:
        print(keep("open_ids", figures))
    return figures


def _compare(sizes: tuple[int, ...], rounds: int) -> list[dict[str, Any]]:
    bounded, opened = _tables(sizes, is_open=False), _tables(sizes, is_open=True)
    nbytes = sum(table.pointer_nbytes for table in opened.tables.values()) / sum(sizes)
    found = []
    for batch in (2_048, 16_384):
        generator = torch.Generator().manual_seed(0)
        limits = torch.tensor(sizes)
        ids = [draw_batch("zipf", sizes, batch, generator) * STRIDE % limits for _ in range(NUM_BATCHES)]
        hashed = [scramble(each) for each in ids]
        for what, make in (("step", _steps), ("lookup", _lookups)):
            candidates = {"bounded": make(bounded, ids), "open": make(opened, hashed)}
            seconds = medians(candidates, rounds=rounds, clock=time.thread_time)
            us = {name: 1e6 * each / NUM_BATCHES for name, each in seconds.items()}
            facts = {"tables": len(sizes), "ids": sum(sizes), "batch": batch, "what": what}
            found.append({**facts, **us, "ratio": us["open"] / us["bounded"], "bytes an id": nbytes})
    return found


def _tables(sizes: tuple[int, ...], *, is_open: bool) -> cce.EmbeddingCollection:
    """Tables in which all ids have rows."""
    features = {f"C{index}": None if is_open else size for index, size in enumerate(sizes)}
    tables = cce.EmbeddingCollection(features, DIM, seed=0)
    for table, size in zip(tables.tables.values(), sizes, strict=True):
        rows: Any = table.rows
        rows.reserve(size + 1)
        for first in range(0, size, 1 << 22):
            ids = torch.arange(first, min(first + (1 << 22), size))
            rows.give_rows(scramble(ids) if is_open else ids)
    return tables


def _lookups(tables: cce.EmbeddingCollection, batches: list[Tensor]) -> Callable[[], None]:
    def run() -> None:
        with torch.no_grad():
            for ids in batches:
                tables(ids)

    return run


def _steps(tables: cce.EmbeddingCollection, batches: list[Tensor]) -> Callable[[], None]:
    optimizer = cce.optim.Adam(tables, lr=1e-3)
    grad = torch.randn(len(batches[0]), len(tables.features), DIM, generator=torch.Generator().manual_seed(1))

    def run() -> None:
        for ids in batches:
            optimizer.zero_grad()
            tables(ids).backward(grad)
            optimizer.step()

    return run


def _row(each: dict[str, Any]) -> tuple[str, ...]:
    numbers = (f"{each['bounded']:,.0f}", f"{each['open']:,.0f}", f"{each['ratio']:.2f}", f"{each['bytes an id']:.1f}")
    return (f"{each['tables']}", f"{each['ids']:,}", f"{each['batch']:,}", each["what"], *numbers)


if __name__ == "__main__":
    main()
