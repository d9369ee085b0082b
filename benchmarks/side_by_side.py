"""How every benchmark here measures: candidates take turns in one process, and medians are compared."""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import os
import platform
import statistics
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RESULTS = Path("results/bench")


def medians(
    candidates: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    warmup: int = 3,
    burst: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds of each candidate, measured in turns, so that a busy machine slows all alike.

    In its turn a candidate runs `burst` times: with several, what it needs is in the caches, as in a loop of its own.
    clock: `time.thread_time` counts no time of other processes, for work on one thread.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for index in range(warmup + rounds):
        for name, run in candidates.items():
            for _ in range(burst):
                started = clock()
                run()
                if index >= warmup:
                    times[name].append(clock() - started)
    return {name: statistics.median(values) for name, values in times.items()}


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    model = next((line for line in _lines("/proc/cpuinfo") if line.startswith("model name")), ": unknown")
    return {
        "cpu": model.split(":")[1].strip(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": [round(value, 2) for value in os.getloadavg()],
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def commit() -> str:
    """The commit, marked where code differs from it; records may."""
    head, changed = (
        subprocess.run(["git", *command], capture_output=True, text=True, check=False).stdout.strip()
        for command in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "src", "benchmarks"])
    )
    return f"{head}-dirty" if changed else head


def keep(name: str, figures: object) -> Path:
    """Write the figures, the commit and the machine to `results/bench/NAME.json`."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"commit": commit(), "machine": machine(), "figures": figures}, indent=1) + "\n")
    return path


def give_back_memory() -> None:
    """Hand freed memory back to the system, so that what is used next is seen (glibc only)."""
    libc = ctypes.util.find_library("c")
    if libc is not None and hasattr(ctypes.CDLL(libc), "malloc_trim"):
        ctypes.CDLL(libc).malloc_trim(0)


class PeakMemory:
    """`with PeakMemory() as peak:` — then `peak.bytes`: how far resident memory rose above its level before.

    read: `allocated` sees less noise, where memory is small.
    """

    def __init__(self, read: Callable[[], int] | None = None) -> None:
        self._read = read or resident

    def __enter__(self) -> PeakMemory:
        self.bytes = 0
        self._before = self._read()
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._watcher.join()
        self._sample()

    def _watch(self) -> None:
        while not self._done.wait(0.002):
            self._sample()

    def _sample(self) -> None:
        self.bytes = max(self.bytes, self._read() - self._before)


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class _Mallinfo(ctypes.Structure):
    _fields_ = tuple((f"field{index}", ctypes.c_size_t) for index in range(10))  # mallinfo(3)


def allocated() -> int:
    """Bytes of memory that this process has asked for and not given back (glibc only)."""
    libc = ctypes.CDLL(ctypes.util.find_library("c"))
    libc.mallinfo2.restype = _Mallinfo
    found = libc.mallinfo2()
    return int(found.field4 + found.field7)  # hblkhd, what is mapped, and uordblks, the rest


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []
