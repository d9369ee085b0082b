"""Criteo's Terabyte log: `day_0` … `day_23`, plain or gzipped, lines as in the Kaggle challenge.

As in DLRM and the paper, one may keep one negative row in eight, and reduce the words modulo a limit. The last day
is held out, one half of it for validation and one for the test.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cce.data.prepare.columns import SAMPLES
from cce.data.prepare.inputs import Input
from cce.data.prepare.job import Job, Splitting
from cce.data.sources.criteo_kaggle import COLUMNS, READING
from cce.data.sources.registry import Option, Source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DAY = re.compile(r"day_(\d+)(\.gz)?")
KEEP = 0.125  # DLRM and the paper


def criteo_terabyte_job(
    raw: Path, *, sample: str = "all", keep: float | None = None, modulus: int | None = None, seed: int = 0
) -> Job:
    """The job of a folder of day files, or of a single one. `keep` is the share of (negative) rows that stay: 1/8."""
    if sample == "all" and keep is not None:
        raise ValueError(f"keep must be left out unless sample is rows or negatives, got {keep}.")
    keep = 1.0 if sample == "all" else KEEP if keep is None else keep
    inputs = tuple(Input(path) for path in (_days(raw) if raw.is_dir() else [raw]))
    reading = replace(READING, sample=sample, keep=keep, modulus=modulus, seed=seed)
    return Job(CRITEO_TERABYTE.name, inputs, COLUMNS, reading, Splitting("last-file" if len(inputs) > 1 else "order"))


def _days(folder: Path) -> list[Path]:
    """Day files in order; of a day that is there both plain and gzipped, the plain one."""
    days: dict[int, Path] = {}
    for path in sorted(folder.iterdir(), reverse=True):
        match = DAY.fullmatch(path.name)
        if match:
            days[int(match[1])] = path
    if not days:
        raise FileNotFoundError(f"{folder} must hold files day_0, day_1, … (or .gz), and there is none.")
    return [days[day] for day in sorted(days)]


def _make(raw: Path, options: Mapping[str, Any]) -> Job:
    own = {name: options[name] for name in ("sample", "keep", "modulus", "seed") if name in options}
    return criteo_terabyte_job(raw, **own)


CRITEO_TERABYTE = Source(
    name="criteo-terabyte",
    about="day_0 … day_23 of Criteo's Terabyte log, plain or .gz",
    example="cce prepare criteo-terabyte days/ runs/terabyte --sample negatives --keep 0.125 --modulus 40000000 "
    "--vocabulary-from all",
    splits=("last-file", "order", "random"),
    default_split="the last day, in halves",
    make=_make,
    reuse=lambda raw, _columns, reading: criteo_terabyte_job(raw, modulus=reading.modulus),
    options=(
        Option("sample", "keep all rows (the default), or some, or all positive ones and some others", choices=SAMPLES),
        Option("keep", f"share of (negative) rows kept when sampling (default: {KEEP})", type=float),
        Option("modulus", "reduce the hexadecimal words modulo this integer", type=int),
    ),
)
