"""A training step of 26 tables of Criteo's sizes with torch's optimizers and with ours, on one thread.

    python -m benchmarks.optimizer [--quick] [--rounds 15]

A step is a lookup of one batch, its backward pass and the step of the optimizer. Tables are compressed to at most
128,000 values each. Every candidate has tables of its own; all take turns.
"""

from __future__ import annotations

import argparse
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, optim

import cce
from benchmarks.side_by_side import keep, medians
from benchmarks.traffic import CRITEO_SIZES, draw_batch
from cce.text import format_table

if TYPE_CHECKING:
    from collections.abc import Callable

DIM, CAP = 16, 128_000
CANDIDATES: dict[str, tuple[Any, bool]] = {  # and whether gradients are sparse
    "torch SGD, dense": (partial(optim.SGD, fused=True), False),
    "torch SGD, sparse": (optim.SGD, True),
    "torch Adagrad, dense": (partial(optim.Adagrad, fused=True), False),
    "torch Adagrad, sparse": (optim.Adagrad, True),
    "cce.optim.RowwiseAdagrad, sparse": (cce.optim.RowwiseAdagrad, True),
    "torch Adam, dense": (partial(optim.Adam, fused=True), False),
    "torch SparseAdam, sparse": (optim.SparseAdam, True),
    "cce.optim.LazyAdam, sparse": (cce.optim.LazyAdam, True),
}


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(argv)
    warnings.filterwarnings("ignore", "Sparse invariant checks")  # from torch's own Adagrad
    torch.set_num_threads(1)
    sizes = tuple(min(size, 10_000) for size in CRITEO_SIZES) if options.quick else CRITEO_SIZES
    rounds, cap = (3, 8000) if options.quick else (options.rounds, CAP)
    steps = {name: _maker(sizes, cap, *parts) for name, parts in CANDIDATES.items()}
    figures: list[dict[str, Any]] = []
    for batch in (128,) if options.quick else (128, 2048, 16_384):
        ids = draw_batch("zipf", sizes, batch, torch.Generator().manual_seed(0))
        grad = torch.randn(batch, len(sizes), DIM, generator=torch.Generator().manual_seed(1))
        seconds = medians({name: partial(step, ids, grad) for name, step in steps.items()}, rounds=rounds)
        figures += [{"optimizer": name, "batch": batch, "us": 1e6 * seconds[name]} for name in steps]
    print(f"{len(sizes)} tables, dim {DIM}, cap {cap:,}, Zipf ids, one thread: lookup, backward and step")
    rows = [(each["optimizer"], f"{each['batch']:,}", f"{each['us']:,.0f}") for each in figures]
    print(format_table(("optimizer", "batch", "us"), rows))
    if not options.quick:
        print(keep("optimizer", figures))
    return figures


def _maker(sizes: tuple[int, ...], cap: int, kind: Any, sparse: bool) -> Callable[[Tensor, Tensor], None]:  # noqa: FBT001
    features = {f"C{index}": size for index, size in enumerate(sizes)}
    tables = cce.EmbeddingCollection(features, DIM, method="cce-paper", cap=cap, sparse=sparse, seed=0)
    optimizer = kind(tables.parameters(), lr=1e-4)

    def step(ids: Tensor, grad: Tensor) -> None:
        tables.zero_grad(set_to_none=True)
        tables(ids).backward(grad)
        optimizer.step()

    return step


if __name__ == "__main__":
    main()
