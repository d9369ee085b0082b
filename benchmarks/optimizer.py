"""One optimizer step of 26 tables of Criteo's sizes, compressed to at most 128,000 numbers each: torch's and ours.

    python -m benchmarks.optimizer [--quick]

Gradients are those of one batch, as the fused lookup makes them: dense, or sparse with only the rows that were used.
Every candidate has parameters of its own and applies the same gradients again and again. On a machine that others use
as well, look at one thread: torch's threads wait for each other.
"""

from __future__ import annotations

import argparse
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import cce
from benchmarks.side_by_side import keep, medians
from benchmarks.traffic import CRITEO_SIZES, draw_batch
from cce.text import format_table

if TYPE_CHECKING:
    from collections.abc import Callable

DIM, CAP = 16, 128_000
PEER = "torch SGD, dense"
CANDIDATES: dict[str, tuple[Any, bool]] = {
    PEER: (torch.optim.SGD, False),
    "torch SGD, sparse": (torch.optim.SGD, True),
    "cce.optim.SGD, sparse": (cce.optim.SGD, True),
    "torch Adagrad, dense": (torch.optim.Adagrad, False),
    "torch Adagrad, sparse": (torch.optim.Adagrad, True),
    "cce.optim.RowwiseAdagrad, dense": (cce.optim.RowwiseAdagrad, False),
    "cce.optim.RowwiseAdagrad, sparse": (cce.optim.RowwiseAdagrad, True),
}


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(argv)
    warnings.filterwarnings("ignore", "Sparse invariant checks")  # from torch's own Adagrad
    sizes = tuple(min(size, 10_000) for size in CRITEO_SIZES) if options.quick else CRITEO_SIZES
    rounds, cap = (3, 8000) if options.quick else (61, CAP)
    features = {f"C{index}": size for index, size in enumerate(sizes)}
    tables = cce.EmbeddingCollection(features, DIM, method="cce-paper", cap=cap, sparse=True, seed=0)
    figures: list[dict[str, Any]] = []
    num_threads = torch.get_num_threads()
    for batch in (128,) if options.quick else (128, 2048, 16_384):
        ids = draw_batch("zipf", sizes, batch, torch.Generator().manual_seed(0))
        tables.zero_grad()
        tables(ids).backward(torch.randn(batch, len(sizes), DIM, generator=torch.Generator().manual_seed(1)))
        for threads in sorted({1, num_threads}):
            torch.set_num_threads(threads)
            seconds = medians({name: _step(tables, *parts) for name, parts in CANDIDATES.items()}, rounds=rounds)
            figures += [{**_figure(name, batch, tables, seconds), "threads": threads} for name in CANDIDATES]
    headers = ("optimizer", "batch", "threads", "rows used", "us", f"x {PEER}")
    print(f"{len(sizes)} tables, {tables.num_params:,} numbers, dim {DIM}, cap {cap:,}, Zipf ids: one optimizer step")
    print(format_table(headers, [_row(figure) for figure in figures]))
    if not options.quick:
        print(keep("optimizer", figures))
    return figures


def _step(tables: nn.Module, kind: Any, sparse: bool) -> Callable[[], None]:  # noqa: FBT001
    parameters = []
    for parameter in tables.parameters():
        own, grad = nn.Parameter(parameter.detach().clone()), parameter.grad
        assert grad is not None
        own.grad = grad if sparse else grad.to_dense()
        parameters.append(own)
    step: Callable[[], None] = kind(parameters, lr=1e-4).step
    return step


def _figure(name: str, batch: int, tables: nn.Module, seconds: dict[str, float]) -> dict[str, Any]:
    grads = [parameter.grad for parameter in tables.parameters()]
    return {
        "optimizer": name,
        "batch": batch,
        "rows_used": sum(len(grad._values()) for grad in grads if grad is not None),
        "rows": sum(len(parameter) for parameter in tables.parameters()),
        "us": 1e6 * seconds[name],
        "times_dense": seconds[name] / seconds[PEER],
    }


def _row(figure: dict[str, Any]) -> tuple[str, ...]:
    used = f"{figure['rows_used']:,} of {figure['rows']:,}"
    start = (figure["optimizer"], f"{figure['batch']:,}", str(figure["threads"]), used)
    return (*start, f"{figure['us']:,.0f}", f"{figure['times_dense']:.2f}")


if __name__ == "__main__":
    main()
