"""The first lookup, and the first k-means, of a new environment: nothing is compiled yet.

    python -m benchmarks.first_lookup
    python -m benchmarks.first_lookup --json results/bench/first_lookup.json

A process with an empty cache looks up 1,000 ids: plain torch answers while another process compiles. A second process
then finds the loops on disk. Seconds are those of the lookup itself, without imports; medians of `--repeats` runs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = """
import json, time
import torch, cce
from cce.clustering import kmeans
table = cce.embeddings.ClusteredEmbedding(100_000, 16, num_rows=1_000)
ids = torch.randint(100_000, (1_000,))
points = torch.randn(50_000, 16)

def seconds(task):
    started, cpu = time.perf_counter(), time.process_time()
    task()
    return time.perf_counter() - started, time.process_time() - cpu

steps = lambda: table(ids), lambda: table(ids).sum().backward(), lambda: kmeans(points, 256)
print(json.dumps(dict(zip(["lookup", "step", "k-means"], map(seconds, steps)))))
"""


def main(argv: Sequence[str] | None = None) -> list[dict[str, object]]:
    """Print, and return, what is done for the first time in an environment and in a later process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one repeat")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args(argv)
    runs = [_cold_and_warm() for _ in range(1 if options.quick else options.repeats)]
    lines = [
        {
            "task": task,
            "cache": cache,
            "seconds": statistics.median(run[cache][task][0] for run in runs),
            "cpu_seconds": statistics.median(run[cache][task][1] for run in runs),
        }
        for cache in ("empty", "filled")
        for task in ("lookup", "step", "k-means")
    ]
    for line in lines:
        print(f"{line['task']:>8} {line['cache']:>7} {line['seconds']:8.3f} s {line['cpu_seconds']:8.3f} CPU s")
    if options.json:
        machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
        options.json.write_text(json.dumps({"machine": machine, "timings": lines}, indent=1) + "\n")
    return lines


def _cold_and_warm() -> dict[str, dict[str, tuple[float, float]]]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder, "CCE_COMPILED": ""}
        words = [sys.executable, "-c", PROGRAM]
        return {
            cache: json.loads(subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE).stdout)
            for cache in ("empty", "filled")
        }


if __name__ == "__main__":
    main()
