"""Resident memory of training one table, measured in processes of their own: model, gradients and optimizer.

    python -m benchmarks.memory [--quick]

Memory is what the process holds beyond an empty one with torch loaded, after three steps, and at its peak. Tables that
would need more than `MOST_NBYTES` are not made: what their parameters, gradients and moments hold is computed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

from benchmarks.side_by_side import PeakMemory, keep
from cce.text import format_bytes, format_table

DIM, BATCH, NUM_PARAMS = 16, 16_384, 128_000
MOST_NBYTES = 12 << 30  # of a table in training
NUMBERS = {"sgd": 1, "adam": 3, "descent": 1}  # parameter and moments; a dense gradient is one more
TABLES = {
    "sgd": ("nn.Embedding", "nn.Embedding, sparse", "cce"),
    "adam": ("nn.Embedding", "nn.Embedding, sparse", "cce"),
    "descent": ("quantized, 8 bits", "quantized, 16 bits"),
}


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", nargs=3, default=None, help=argparse.SUPPRESS)  # table, ids, optimizer: as JSON
    options = parser.parse_args(argv)
    if options.one:
        table, num_ids, optimizer = options.one
        print(json.dumps(_measure(table, int(num_ids), optimizer)))
        return []
    sizes = (100_000,) if options.quick else (1_000_000, 10_000_000, 100_000_000)
    cases = [(table, num_ids, optimizer) for num_ids in sizes for optimizer in TABLES for table in TABLES[optimizer]]
    figures = [_in_a_process(*case) if _fits(*case) else _computed(*case) for case in cases]
    headers = ("table", "ids", "optimizer", "held", "peak", "seconds")
    rows = [
        (f["table"], f"{f['num_ids']:,}", f["optimizer"], format_bytes(f["held"]),
         *((format_bytes(f["peak"]), f"{f['seconds']:.1f}") if f["measured"] else ("computed", "too large")))
        for f in figures
    ]  # fmt: skip
    print(f"dim {DIM}, batches of {BATCH:,}; cce of {NUM_PARAMS:,} params")
    print(format_table(headers, rows))
    if not options.quick:
        print(keep("memory", figures))
    return figures


def _nbytes(table: str, num_ids: int, optimizer: str) -> int:
    """Bytes of a table in training, but for a batch."""
    if not table.startswith("nn."):
        return num_ids * DIM * (2 if "16" in table else 1)  # of cce, pointers: less than that
    numbers = NUMBERS[optimizer] + (0 if table.endswith("sparse") else 1)
    return num_ids * DIM * 4 * numbers


def _fits(table: str, num_ids: int, optimizer: str) -> bool:
    return _nbytes(table, num_ids, optimizer) <= MOST_NBYTES


def _computed(table: str, num_ids: int, optimizer: str) -> dict[str, Any]:
    held = _nbytes(table, num_ids, optimizer)
    return {"table": table, "num_ids": num_ids, "optimizer": optimizer, "held": held, "measured": False}


def _in_a_process(table: str, num_ids: int, optimizer: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.memory", "--one", table, str(num_ids), optimizer]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(result.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def _measure(name: str, num_ids: int, optimizer_name: str) -> dict[str, Any]:
    import torch

    import cce
    from benchmarks.side_by_side import resident

    warm = cce.create_embedding("cce-paper", 1000, DIM, num_params=1600, seed=0)
    warm(torch.arange(300)).sum().backward()
    torch.optim.Adam(warm.parameters()).step()
    codes = cce.QuantizedEmbedding(1000, DIM, bits=16 if "16" in name else 8)
    descent = cce.optim.PointerDescent(codes)
    codes(torch.arange(300)).sum().backward()
    descent.step()  # all code is loaded from here on
    before, started = resident(), time.perf_counter()
    with PeakMemory() as peak:
        table = _make_table(name, num_ids)
        optimizer = _make_optimizer(optimizer_name, table, sparse=name.endswith("sparse"))
        generator = torch.Generator().manual_seed(0)
        for _ in range(3):
            optimizer.zero_grad()
            table(torch.randint(0, num_ids, (BATCH,), generator=generator)).square().sum().backward()
            optimizer.step()
    return {
        "table": name,
        "num_ids": num_ids,
        "optimizer": optimizer_name,
        "measured": True,
        "held": resident() - before,
        "peak": peak.bytes,
        "seconds": time.perf_counter() - started,
    }


def _make_table(name: str, num_ids: int) -> Any:
    import torch

    import cce

    if name == "cce":
        return cce.create_embedding("cce-paper", num_ids, DIM, num_params=NUM_PARAMS, seed=0)
    if name.startswith("quantized"):
        return cce.QuantizedEmbedding(num_ids, DIM, bits=16 if "16" in name else 8)
    return torch.nn.Embedding(num_ids, DIM, sparse=name.endswith("sparse"))


def _make_optimizer(name: str, table: Any, *, sparse: bool) -> Any:
    import torch

    import cce

    if name == "descent":
        return cce.optim.PointerDescent(table)
    if name == "sgd":
        return torch.optim.SGD(table.parameters(), lr=0.1)
    return (torch.optim.SparseAdam if sparse else torch.optim.Adam)(table.parameters())


if __name__ == "__main__":
    main()
