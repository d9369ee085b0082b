"""Forward and backward of one table: every method in plain torch, beside torch's own tables.

    python -m benchmarks.lookup [--quick]

The full table's numbers are torch's `nn.Embedding`, with dense and with sparse gradients. A compressed table costs
more here: it is looked up in several small steps.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import cce
from benchmarks.side_by_side import keep, medians
from cce.text import format_table

if TYPE_CHECKING:
    from collections.abc import Callable

DIM, BATCH = 16, 16_384
COMPRESSION = 125
NARROWEST = {"collide": 15, "mixed-dim": 15}  # these have a number for every id at least


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(argv)
    num_ids, rounds = (20_000, 3) if options.quick else (1_000_000, 15)
    ids = torch.randint(0, num_ids, (BATCH,), generator=torch.Generator().manual_seed(0))
    tables: dict[str, nn.Module] = {
        "nn.Embedding": nn.Embedding(num_ids, DIM),
        "nn.Embedding(sparse=True)": nn.Embedding(num_ids, DIM, sparse=True),
    }
    for method in cce.list_methods():
        compression = 1 if method == "full" else NARROWEST.get(method, COMPRESSION)
        tables[method] = cce.create_embedding(method, num_ids, DIM, compression=compression, seed=0)
    seconds = medians({name: _step(table, ids) for name, table in tables.items()}, rounds=rounds)
    figures = [_figure(name, table, seconds) for name, table in tables.items()]
    headers = ("table", "params", "ms", "x nn.Embedding", "x sparse")
    print(f"{num_ids:,} ids, dim {DIM}, {BATCH:,} uniform ids, forward + backward")
    print(format_table(headers, [_row(figure) for figure in figures]))
    if not options.quick:
        print(keep("lookup", figures))
    return figures


def _step(table: nn.Module, ids: torch.Tensor) -> Callable[[], None]:
    def run() -> None:
        table.zero_grad(set_to_none=True)
        table(ids).sum().backward()

    return run


def _figure(name: str, table: nn.Module, seconds: dict[str, float]) -> dict[str, Any]:
    return {
        "table": name,
        "num_params": sum(parameter.numel() for parameter in table.parameters()),
        "ms": 1000 * seconds[name],
        "times_dense": seconds[name] / seconds["nn.Embedding"],
        "times_sparse": seconds[name] / seconds["nn.Embedding(sparse=True)"],
    }


def _row(figure: dict[str, Any]) -> tuple[str, ...]:
    ratios = (f"{figure['times_dense']:.2f}", f"{figure['times_sparse']:.2f}")
    return (figure["table"], f"{figure['num_params']:,}", f"{figure['ms']:.2f}", *ratios)


if __name__ == "__main__":
    main()
