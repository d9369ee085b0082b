"""Preparing a file in Criteo's format: MB/s and peak memory, beside the straightforward way with pandas.

    python -m benchmarks.prepare [--quick]

Every measurement is a process of its own. Memory is the largest sum of the resident sizes of that process and its
workers, looked at fifty times a second; pages of mapped files count.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.criteo_text import write_criteo_text
from benchmarks.side_by_side import keep
from cce.text import format_bytes, format_table

OURS = """
import json, sys, time
from pathlib import Path
from cce.data import criteo_kaggle_job, prepare_data
from cce.workers import open_engine

if __name__ == "__main__":
    raw, out, jobs = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    started = time.perf_counter()
    with open_engine("local", jobs) as engine:
        prepare_data(criteo_kaggle_job(raw), out, engine=engine, progress=False)
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds}))
"""
PANDAS = """
import json, sys, time
from pathlib import Path
import numpy as np
import pandas as pd

raw, out = Path(sys.argv[1]), Path(sys.argv[2])
started = time.perf_counter()
names = ["label", *(f"I{n}" for n in range(1, 14)), *(f"C{n}" for n in range(1, 27))]
frame = pd.read_csv(raw, sep="\\t", names=names, dtype={name: str for name in names[14:]})
num_train = len(frame) * 6 // 7
out.mkdir()
np.save(out / "labels.npy", frame["label"].to_numpy(np.float32))
np.save(out / "dense.npy", np.log1p(frame[names[1:14]].fillna(0).clip(lower=0).to_numpy(np.float32)))
for name in names[14:]:
    ranked = frame[name][:num_train].value_counts().index
    ids = pd.Series(np.arange(1, len(ranked) + 1), index=ranked)
    np.save(out / f"{name}.npy", frame[name].map(ids).fillna(0).to_numpy(np.int32))
seconds = time.perf_counter() - started
print(json.dumps({"seconds": seconds}))
"""


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(argv)
    sizes = [10_000, 20_000] if options.quick else [500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000]
    pandas_sizes = sizes[:2] if options.quick else sizes[:3]
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        largest = Path(folder) / "largest.txt"
        write_criteo_text(largest, sizes[-1])
        for size in sizes:
            raw = _first_rows(largest, size)
            ways = [("cce, 1 job", OURS, 1), ("cce, 2 jobs", OURS, 2)]
            ways += [("pandas", PANDAS, 1)] if size in pandas_sizes else []
            figures += [_measure(name, code, raw, jobs, size) for name, code, jobs in ways]
    headers = ("way", "rows", "seconds", "MB/s", "memory")
    print(format_table(headers, [_row(figure) for figure in figures]))
    if not options.quick:
        print(keep("prepare", figures))
    return figures


def _first_rows(path: Path, size: int) -> Path:
    raw = path.with_name("train.txt")
    with path.open("rb") as source, raw.open("wb") as target:
        target.writelines(islice(source, size))
    return raw


def _measure(name: str, code: str, raw: Path, jobs: int, size: int) -> dict[str, Any]:
    out, script = raw.with_name("out"), raw.with_name("measured.py")
    shutil.rmtree(out, ignore_errors=True)
    script.write_text(code)  # a file, since worker processes load it again
    command = [sys.executable, str(script), str(raw), str(out), str(jobs)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    peak = 0
    while process.poll() is None:
        peak = max(peak, _resident_of_group(process.pid))
        time.sleep(0.02)
    printed, _ = process.communicate()
    figure: dict[str, Any] = {"way": name, "num_rows": size, **json.loads(printed), "memory": peak}
    figure["mb_per_second"] = raw.stat().st_size / 1e6 / figure["seconds"]
    print(f"{name}, {size:,} rows: {figure['seconds']:.1f} s", file=sys.stderr, flush=True)
    return figure


def _resident_of_group(group: int) -> int:
    """Bytes in memory of all processes of a group."""
    pages = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        pages += int(fields[21]) if int(fields[2]) == group else 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _row(figure: dict[str, Any]) -> tuple[str, ...]:
    speed = f"{figure['mb_per_second']:.1f}"
    return (
        figure["way"],
        f"{figure['num_rows']:,}",
        f"{figure['seconds']:.1f}",
        speed,
        format_bytes(figure["memory"]),
    )


if __name__ == "__main__":
    main()
