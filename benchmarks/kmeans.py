"""k-means and assignment: ours beside faiss, in one process, from the same start.

    python benchmarks/kmeans.py            # the sizes below, 50 iterations, and assignments of millions of points
    python benchmarks/kmeans.py --quick    # small sizes, a few seconds
    python benchmarks/kmeans.py --json results/kmeans.json
    python -m benchmarks.kmeans --tasks column   # one column of 16 and 64 values, with memory, kept in results/bench

Every figure is the median of `--repeats` runs, taken in turn (ours, faiss, ours, …), so that a busy machine slows both
alike. CPU seconds count all threads; `ratio` is faiss's CPU seconds over ours. Figures are per iteration. Those of one
column are for as many rows as fit the time, `COLUMN_ITERATIONS` iterations with what they prepare; the seconds of 100
million rows are computed in proportion, not measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.side_by_side import PeakMemory, give_back_memory, keep
from cce.clustering import kmeans, nearest_centroid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

SIZES = [
    (256_000, 1024, 4),
    (1_024_000, 4000, 4),
    (262_144, 1024, 5),
    (262_144, 1024, 8),
    (65_536, 256, 16),
    (262_144, 1024, 16),
    (1_048_576, 4096, 16),
    (262_144, 1024, 64),
]
QUICK_SIZES = [(32_000, 128, 4), (32_000, 128, 16)]
ASSIGNMENTS = [(2_000_000, 4000, 4), (2_000_000, 256, 16), (2_000_000, 1024, 16)]
COLUMNS = [
    (4_000_000, 256, 16),
    (2_000_000, 1024, 16),
    (1_000_000, 4096, 16),
    (200_000, 65_536, 16),
    (1_000_000, 256, 64),
    (1_000_000, 1024, 64),
    (400_000, 4096, 64),
    (100_000, 65_536, 64),
]
QUICK_COLUMNS = [(20_000, 256, 16)]
COLUMN_ITERATIONS, MANY_ROWS = 2, 100_000_000
QUICK_ASSIGNMENTS = [(200_000, 1024, 4), (200_000, 256, 16)]


@dataclass(frozen=True)
class Timing:
    """One backend at one size: seconds are medians, per iteration for k-means and in all for an assignment."""

    task: str
    num_points: int
    num_clusters: int
    width: int
    backend: str
    cpu_seconds: float
    wall_seconds: float
    ratio: float  # CPU seconds over those of ours
    wall_ratio: float
    inertia_per_point: float | None


def main(argv: Sequence[str] | None = None) -> list[Timing]:
    options = _options(argv)
    torch.set_num_threads(options.threads)
    if "faiss" in options.backends:
        import faiss

        faiss.omp_set_num_threads(options.threads)
    _warm_up(options)
    timings: list[Timing] = []
    for size in (QUICK_SIZES if options.quick else SIZES) if "fit" in options.tasks else []:
        timings += _time_kmeans(size, options)
        _print_last(timings, size)
    for size in (QUICK_ASSIGNMENTS if options.quick else ASSIGNMENTS) if "assign" in options.tasks else []:
        timings += _time_assignment(size, options)
        _print_last(timings, size)
    if "column" in options.tasks:
        figures = [
            figure for size in (QUICK_COLUMNS if options.quick else COLUMNS) for figure in _column(size, options)
        ]
        if not options.quick:
            print(keep("kmeans_column", figures))
    if options.json:
        _write(options, timings)
    return timings


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, one repeat")
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--backends", nargs="+", default=["native", "faiss"])
    parser.add_argument("--tasks", nargs="+", default=["fit", "assign"], choices=["fit", "assign", "column"])
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args(argv)
    if options.quick:
        options.iterations, options.repeats = min(options.iterations, 5), 1
    return options


def _warm_up(options: argparse.Namespace) -> None:
    """Compile, import and start threads before anything is timed."""
    for _, _, width in QUICK_SIZES if options.quick else SIZES:
        points = torch.randn(2000, width)
        for backend in options.backends:
            kmeans(points, 32, init=points[:32], max_iter=3, backend=backend)
            nearest_centroid(points, points[:32], backend=backend)


def _time_kmeans(size: tuple[int, int, int], options: argparse.Namespace) -> list[Timing]:
    num_points, num_clusters, _ = size
    points, start = _gaussian(size)
    inertias: dict[str, float] = {}

    def fit(backend: str) -> int:
        result = kmeans(points, num_clusters, init=start, max_iter=options.iterations, backend=backend)
        inertias[backend] = result.inertias[-1] / num_points
        return len(result.inertias)

    return _timings("k-means", size, _in_turn(fit, options.backends, options.repeats), inertias)


def _time_assignment(size: tuple[int, int, int], options: argparse.Namespace) -> list[Timing]:
    points, start = _gaussian(size)
    centroids = kmeans(points[: 64 * size[1]], size[1], init=start, max_iter=5).centroids

    def assign(backend: str) -> int:
        nearest_centroid(points, centroids, backend=backend)
        return 1

    return _timings("assign", size, _in_turn(assign, options.backends, options.repeats), {})


def _column(size: tuple[int, int, int], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Seconds of an iteration and memory above the points, measured, and seconds for 100 million rows, computed."""
    num_points, num_clusters, width = size
    points, start = _gaussian(size)
    nbytes: dict[str, int] = {}

    def fit(backend: str) -> int:
        give_back_memory()
        with PeakMemory() as peak:
            result = kmeans(points, num_clusters, init=start, max_iter=COLUMN_ITERATIONS, backend=backend)
        nbytes[backend] = max(peak.bytes, nbytes.get(backend, 0))
        return len(result.inertias)

    figures = []
    for backend, (cpu, wall) in _in_turn(fit, options.backends, options.repeats).items():
        figure = {
            "backend": backend,
            "num_points": num_points,
            "num_clusters": num_clusters,
            "width": width,
            "threads": options.threads,
            "cpu_seconds_an_iteration": cpu,
            "wall_seconds_an_iteration": wall,
            "peak_bytes_above_points": nbytes[backend],
        }
        figure["computed_cpu_seconds_for_100m_rows"] = figure["cpu_seconds_an_iteration"] * MANY_ROWS / num_points
        print(
            f"{backend:>8} {num_points:>10,} x {width} k={num_clusters:<6,} "
            f"{figure['cpu_seconds_an_iteration']:8.3f} CPU s {nbytes[backend] / 1e6:8.1f} MB; "
            f"100M rows, computed: {figure['computed_cpu_seconds_for_100m_rows']:,.0f} CPU s",
            flush=True,
        )
        figures.append(figure)
    return figures


def _gaussian(size: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    num_points, num_clusters, width = size
    points = torch.randn(num_points, width, generator=torch.Generator().manual_seed(0))
    return points, points[:num_clusters].clone()


def _in_turn(run: Callable[[str], int], backends: list[str], repeats: int) -> dict[str, tuple[float, float]]:
    """Return the median CPU and wall seconds per iteration of every backend."""
    seconds: dict[str, list[tuple[float, float]]] = {backend: [] for backend in backends}
    for _ in range(repeats):
        for backend in backends:
            cpu, wall = time.process_time(), time.perf_counter()
            num_iterations = run(backend)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            seconds[backend].append((cpu / num_iterations, wall / num_iterations))
    return {
        backend: (statistics.median(cpu for cpu, _ in runs), statistics.median(wall for _, wall in runs))
        for backend, runs in seconds.items()
    }


def _timings(
    task: str, size: tuple[int, int, int], seconds: dict[str, tuple[float, float]], inertias: dict[str, float]
) -> list[Timing]:
    ours = next(iter(seconds.values()))
    return [
        Timing(task, *size, backend, cpu, wall, cpu / ours[0], wall / ours[1], inertias.get(backend))
        for backend, (cpu, wall) in seconds.items()
    ]


def _print_last(timings: list[Timing], size: tuple[int, int, int]) -> None:
    shown = [timing for timing in timings if (timing.num_points, timing.num_clusters, timing.width) == size]
    print(f"\n{shown[-1].task}: {size[0]:,} points, {size[1]:,} centroids, width {size[2]}")
    print(f"{'backend':>10} {'CPU s':>9} {'wall s':>9} {'CPU ratio':>10} {'wall ratio':>10} {'inertia/point':>14}")
    for timing in shown:
        inertia = "" if timing.inertia_per_point is None else f"{timing.inertia_per_point:.5f}"
        figures = f"{timing.cpu_seconds:9.4f} {timing.wall_seconds:9.4f} {timing.ratio:9.2f}x {timing.wall_ratio:9.2f}x"
        print(f"{timing.backend:>10} {figures} {inertia:>14}", flush=True)


def _write(options: argparse.Namespace, timings: list[Timing]) -> None:
    record = {
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": options.threads,
        "iterations": options.iterations,
        "repeats": options.repeats,
        "timings": [asdict(timing) for timing in timings],
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
