"""One table: forward and backward of the compiled lookup beside torch's own tables and our plain definition.

    python -m benchmarks.lookup [--quick]

A table of 1,000,000 ids and 16 values, compressed to 128,000 parameters. `nn.Embedding(sparse=True)` leaves the summing
of gradients to the optimizer; another column therefore adds a step of SGD to both. The last column is
inference: forward without gradients. CCE is the paper's with 4 columns, and once with 8. Packed pointers have
two rows: the same table with pointers of 4 and of 8 bits.

    python -m benchmarks.lookup --pointers    # one column: pointers of 8, 10, 12 and 16 bits, CPU time of inference
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import cce
from benchmarks.side_by_side import keep, medians
from benchmarks.traffic import draw_ids
from cce.indexing import PointerStore
from cce.kernels import gather_sum
from cce.text import format_table

if TYPE_CHECKING:
    from collections.abc import Callable

DIM, NUM_PARAMS = 16, 128_000
WIDTHS = (8, 10, 12, 16)  # bits of pointers
PEER = "nn.Embedding(sparse=True)"
LINEAR = ("hash", "hash-embedding", "ce-concat", "ce-sum", "robe", "pq", "cce-paper")


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--pointers", action="store_true", help="measure widths of pointers alone")
    options = parser.parse_args(argv)
    if options.pointers:
        return _compare_widths(20_000 if options.quick else 1_000_000, quick=options.quick)
    num_ids, rounds = (20_000, 3) if options.quick else (1_000_000, 61)
    threads = torch.get_num_threads()
    figures = []
    try:
        for num_threads in (1,) if options.quick else (1, 2):
            torch.set_num_threads(num_threads)
            for batch in (2048, 16_384):
                for traffic in ("uniform", "zipf"):
                    figures += _measure(num_ids, batch, traffic, rounds)
    finally:
        torch.set_num_threads(threads)
    headers = ("table", "threads", "batch", "ids", "ms", "x sparse", "x sparse, with SGD", "x inference")
    print(f"{num_ids:,} ids, dim {DIM}, {NUM_PARAMS:,} params, forward + backward")
    print(format_table(headers, [_row(figure) for figure in figures]))
    if not options.quick:
        print(keep("lookup", figures))
    return figures


def _measure(num_ids: int, batch: int, traffic: str, rounds: int) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    ids = draw_ids(traffic, num_ids, batch, generator)
    grad = torch.randn(batch, DIM, generator=generator)
    tables: dict[str, nn.Module] = {
        PEER: nn.Embedding(num_ids, DIM, sparse=True),
        "nn.Embedding": nn.Embedding(num_ids, DIM),
        "full": _table("full", num_ids, sparse=True),
        **{method: _table(method, num_ids) for method in LINEAR},
        "cce, sparse gradient": _table("cce-paper", num_ids, sparse=True),
        "cce of 8 columns": _table("cce-paper", num_ids, num_columns=8),
        **{f"cce of 16 rows, pointers of {bits} bits": _few_rows(num_ids, bits) for bits in (4, 8)},
    }
    slow = {"nn.Embedding": max(3, rounds // 10), "cce, plain torch": max(3, rounds // 10)}
    steps = {name: _step(table, ids, grad) for name, table in tables.items()}
    with_sgd = {f"{name} + SGD": _step(table, ids, grad, step=True) for name, table in tables.items()}
    inference = {f"{name} alone": _inference(table, ids) for name, table in tables.items()}
    steps["cce, plain torch"] = _plain_step(tables["cce-paper"], ids, grad)
    every = steps | with_sgd | inference
    fast = {name: step for name, step in every.items() if name.partition(" + ")[0] not in slow}
    seconds = medians(fast, rounds=rounds, burst=5)
    seconds |= medians({name: steps[name] for name in slow}, rounds=min(slow.values()), burst=3)
    return [
        {
            "table": name,
            "threads": torch.get_num_threads(),
            "batch": batch,
            "traffic": traffic,
            "ms": 1000 * seconds[name],
            "times_sparse": seconds[name] / seconds[PEER],
            "times_sparse_with_sgd": seconds[f"{name} + SGD"] / seconds[f"{PEER} + SGD"]
            if f"{name} + SGD" in seconds
            else None,
            "times_inference": seconds[f"{name} alone"] / seconds[f"{PEER} alone"]
            if f"{name} alone" in seconds
            else None,
        }
        for name in steps
    ]


def _compare_widths(num_ids: int, *, quick: bool) -> list[dict[str, Any]]:
    """Lookups in one column on one thread, beside those of 8 bits: in 256 rows, and in all that a width can name."""
    threads, figures = torch.get_num_threads(), []
    torch.set_num_threads(1)
    try:
        for batch in (2048, 16_384):
            ids = draw_ids("uniform", num_ids, batch, torch.Generator().manual_seed(0))
            cases = [(bits, num_rows) for bits in WIDTHS for num_rows in sorted({256, 2**bits})]
            runs = {f"{bits} {rows}": _inference(_one_column(num_ids, bits, rows), ids) for bits, rows in cases}
            seconds = medians(runs, rounds=3 if quick else 201, burst=5, clock=time.thread_time)
            for bits, num_rows in cases:
                own, times = seconds[f"{bits} {num_rows}"], seconds[f"{bits} {num_rows}"] / seconds["8 256"]
                print(
                    f"{bits:>3} bits, {num_rows:>6,} rows, batch {batch:>6,}: {1e6 * own:8.1f} us, {times:.2f} x 8 bits"
                )
                figures.append(
                    {"bits": bits, "num_rows": num_rows, "batch": batch, "us": 1e6 * own, "times_8_bits": times}
                )
    finally:
        torch.set_num_threads(threads)
    if not quick:
        print(keep("pointer_widths", figures))
    return figures


def _one_column(num_ids: int, bits: int, num_rows: int) -> nn.Module:
    """A table of one column with pointers of `bits`."""
    table = cce.embeddings.ProductQuantizedEmbedding(num_ids, DIM, num_rows=num_rows, num_columns=1)
    pointers = PointerStore(num_ids, 1, num_rows, bits=bits)
    pointers.write(0, torch.randint(num_rows, (num_ids, 1), generator=torch.Generator().manual_seed(0)))
    table.assignments.replace(pointers)
    return table


def _table(method: str, num_ids: int, *, sparse: bool = False, **options: int) -> nn.Module:
    budget: dict[str, Any] = {"compression": 1} if method == "full" else {"num_params": NUM_PARAMS}
    return cce.create_embedding(method, num_ids, DIM, seed=0, sparse=sparse, **budget, **options)


def _few_rows(num_ids: int, bits: int) -> nn.Module:
    """A table of 16 rows a column, whose pointers fit in 4 bits, with pointers of `bits`."""
    table = cce.embeddings.ClusteredEmbedding(num_ids, DIM, num_rows=16, generator=torch.Generator().manual_seed(0))
    pointers = PointerStore(num_ids, table.num_columns, table.num_rows, bits=bits)
    pointers.write(0, table.assignments.pointers.to_tensor())
    table.assignments.replace(pointers)
    return table


def _step(table: nn.Module, ids: Tensor, grad: Tensor, *, step: bool = False) -> Callable[[], None]:
    optimizer = torch.optim.SGD(table.parameters(), lr=0.01)

    def run() -> None:
        table.zero_grad(set_to_none=True)
        table(ids).backward(grad)
        if step:
            optimizer.step()

    return run


def _inference(table: nn.Module, ids: Tensor) -> Callable[[], None]:
    def run() -> None:
        with torch.no_grad():
            table(ids)

    return run


def _plain_step(table: nn.Module, ids: Tensor, grad: Tensor) -> Callable[[], None]:
    assert isinstance(table, cce.embeddings.ClusteredEmbedding)

    def run() -> None:
        table.zero_grad(set_to_none=True)
        gather_sum(table.codebook, *table.lookup(ids)).backward(grad)

    return run


def _row(figure: dict[str, Any]) -> tuple[str, ...]:
    others = (figure["times_sparse_with_sgd"], figure["times_inference"])
    return (
        figure["table"],
        str(figure["threads"]),
        f"{figure['batch']:,}",
        figure["traffic"],
        f"{figure['ms']:.3f}",
        f"{figure['times_sparse']:.2f}",
        *("" if times is None else f"{times:.2f}" for times in others),
    )


if __name__ == "__main__":
    main()
