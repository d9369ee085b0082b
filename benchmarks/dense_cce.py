"""Dense CCE for least squares: seconds of a step and peak memory against the number of examples.

    python -m benchmarks.dense_cce [--quick]

Examples name two of 1,000 ids each and are made block by block. `streamed` never holds them; `X in memory` is
`LeastSquares`, whose X is dense, reduced by QR before the first step, and compared with its best table at every step.
Each case has a process of its own; peak memory is beyond one with torch loaded.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks.side_by_side import PeakMemory, keep
from cce.text import format_bytes, format_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

NUM_IDS, DIM, NUM_ROWS, NUM_STEPS, BLOCK = 1_000, 10, 50, 3, 8_192
SECONDS = ("cpu_seconds", "first_seconds")
WAYS = ("streamed", "X in memory")


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", nargs=2, default=None, help=argparse.SUPPRESS)  # way, examples: as JSON
    options = parser.parse_args(argv)
    if options.one:
        print(json.dumps(_measure(options.one[0], int(options.one[1]))))
        return []
    sizes = (2_000, 4_000) if options.quick else (16_384, 32_768, 65_536, 131_072, 262_144)
    cases = [(way, size) for size in sizes for way in WAYS if way == "streamed" or size <= 32_768]
    figures = [_in_a_process(*case) for case in cases]
    rows = [
        (f["way"], f"{f['num_examples']:,}", *(f"{f[name]:.2f}" for name in SECONDS), format_bytes(f["peak"]))
        for f in figures
    ]
    print(f"{NUM_IDS:,} ids, d2 = {DIM}, k = {NUM_ROWS}; CPU seconds of a step, and of what comes before the first")
    print(format_table(("way", "examples", "s a step", "s before", "peak"), rows))
    if not options.quick:
        print(keep("dense_cce", figures))
    return figures


def _in_a_process(way: str, num_examples: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.dense_cce", "--one", way, str(num_examples)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(result.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def blocks(num_examples: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The same examples at every call: two ids each, and normal targets."""
    import torch

    generator = torch.Generator().manual_seed(0)
    for first in range(0, num_examples, BLOCK):
        size = min(BLOCK, num_examples - first)
        ids = torch.randint(0, NUM_IDS, (size, 2), generator=generator)
        yield ids, torch.randn(size, DIM, generator=generator, dtype=torch.float64)


def _measure(way: str, num_examples: int) -> dict[str, Any]:
    import torch

    from cce_lab.theory import Examples, LeastSquares, dense_cce, streamed_cce

    torch.set_num_threads(1)
    warm = torch.randn(200, 100, dtype=torch.float64)
    torch.linalg.lstsq(torch.linalg.qr(warm).R, warm[:100], driver="gelsd")  # all code is loaded from here on
    options: dict[str, Any] = {"num_steps": NUM_STEPS, "generator": torch.Generator().manual_seed(1)}
    started, before = time.process_time(), 0.0
    with PeakMemory() as peak:
        if way == "streamed":
            loss = streamed_cce(Examples(lambda: blocks(num_examples), NUM_IDS, DIM), NUM_ROWS, **options).losses[-1]
        else:
            ids, y = (torch.cat(parts) for parts in zip(*blocks(num_examples), strict=True))
            x = torch.nn.functional.one_hot(ids[:, 0], NUM_IDS).double()
            x[torch.arange(num_examples), ids[:, 1]] += 1
            problem = LeastSquares(x, y).reduced
            before = time.process_time() - started
            loss = dense_cce(problem, NUM_ROWS, **options).losses[-1]
    seconds = (time.process_time() - started - before) / NUM_STEPS
    return {
        "way": way,
        "num_examples": num_examples,
        "cpu_seconds": seconds,
        "first_seconds": before,
        "peak": peak.bytes,
        "loss": loss,
    }


if __name__ == "__main__":
    main()
