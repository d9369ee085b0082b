"""Resident memory of training one table, measured in processes of their own: model, gradients and optimizer.

    python -m benchmarks.memory [--quick]

Memory is what the process holds beyond an empty one with torch loaded, after three steps, and at its peak.
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
    cases = [
        (table, num_ids, optimizer)
        for num_ids in sizes
        for optimizer in ("sgd", "adam")
        for table in ("nn.Embedding", "nn.Embedding, sparse", "cce")
        if not (num_ids > 10_000_000 and (table, optimizer) != ("nn.Embedding, sparse", "sgd") and table != "cce")
    ]
    figures = [_in_a_process(*case) for case in cases]
    headers = ("table", "ids", "optimizer", "held", "peak", "seconds")
    rows = [
        (f["table"], f"{f['num_ids']:,}", f["optimizer"], format_bytes(f["held"]), format_bytes(f["peak"]),
         f"{f['seconds']:.1f}")
        for f in figures
    ]  # fmt: skip
    print(f"dim {DIM}, batches of {BATCH:,}; cce of {NUM_PARAMS:,} params")
    print(format_table(headers, rows))
    if not options.quick:
        print(keep("memory", figures))
    return figures


def _in_a_process(table: str, num_ids: int, optimizer: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.memory", "--one", table, str(num_ids), optimizer]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(result.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def _measure(name: str, num_ids: int, optimizer_name: str) -> dict[str, Any]:
    import torch

    import cce
    from benchmarks.side_by_side import resident

    warm = cce.create_embedding("cce", 1000, DIM, num_params=1600, preset="paper", seed=0)
    warm(torch.arange(300)).sum().backward()
    torch.optim.Adam(warm.parameters()).step()  # all code is loaded from here on
    before, started = resident(), time.perf_counter()
    with PeakMemory() as peak:
        sparse = name.endswith("sparse")
        if name == "cce":
            table: Any = cce.create_embedding("cce", num_ids, DIM, num_params=NUM_PARAMS, preset="paper", seed=0)
        else:
            table = torch.nn.Embedding(num_ids, DIM, sparse=sparse)
        parameters = table.parameters()
        if optimizer_name == "sgd":
            optimizer: Any = torch.optim.SGD(parameters, lr=0.1)
        else:
            optimizer = (torch.optim.SparseAdam if sparse else torch.optim.Adam)(parameters)
        generator = torch.Generator().manual_seed(0)
        for _ in range(3):
            optimizer.zero_grad()
            table(torch.randint(0, num_ids, (BATCH,), generator=generator)).square().sum().backward()
            optimizer.step()
    return {
        "table": name,
        "num_ids": num_ids,
        "optimizer": optimizer_name,
        "held": resident() - before,
        "peak": peak.bytes,
        "seconds": time.perf_counter() - started,
    }


if __name__ == "__main__":
    main()
