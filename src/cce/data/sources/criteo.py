"""Criteo's click logs: `train.txt` of the Kaggle challenge, seven days in order, and days of the Terabyte log.

A line has a label, 13 integers and 26 hexadecimal words, with tabs between them and no header. As in DLRM and the
paper, the last day is held out, one half of it for validation and one for the test; of the Terabyte log one may keep
one negative row in eight, and reduce the words modulo a limit.
"""

import re
from dataclasses import replace
from pathlib import Path

from cce.data.preparation.job import SAMPLES, Columns, Job, Reading, Splitting
from cce.data.raw_files import Input
from cce.data.sources.registry import Option, Source

DENSE = tuple(f"I{index}" for index in range(1, 14))
CATEGORICAL = tuple(f"C{index}" for index in range(1, 27))
NUM_DAYS = 7
COLUMNS = Columns("label", CATEGORICAL, DENSE)
READING = Reading(names=("label", *DENSE, *CATEGORICAL), is_hex=True)
LAST_DAY = Splitting("order", validation=0.5 / NUM_DAYS, test=0.5 / NUM_DAYS)


def criteo_kaggle_job(raw: Path) -> Job:
    """The job of `train.txt` (or `train.txt.gz`), or of the folder that holds it."""
    if raw.is_dir():
        raw = next((raw / name for name in ("train.txt", "train.txt.gz") if (raw / name).exists()), raw / "train.txt")
    return Job(CRITEO_KAGGLE.name, (Input(raw),), COLUMNS, READING, LAST_DAY)


CRITEO_KAGGLE = Source(
    name="criteo-kaggle",
    about="train.txt of Criteo's Kaggle challenge: the last day is held out, in halves",
    splits=("order", "random"),
    make=lambda raw, _options: criteo_kaggle_job(raw),
)


DAY = re.compile(r"day_(\d+)(\.gz)?")
KEEP = 0.125  # DLRM and the paper
OWN = ("sample", "keep", "modulus", "seed")  # options


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


CRITEO_TERABYTE = Source(
    name="criteo-terabyte",
    about="day_0 … day_23 of Criteo's Terabyte log, plain or .gz; the last day is held out, in halves",
    splits=("last-file", "order", "random"),
    make=lambda raw, options: criteo_terabyte_job(raw, **{name: options[name] for name in OWN if name in options}),
    options=(
        Option("sample", "keep all rows (the default), or some, or all positive ones and some others", choices=SAMPLES),
        Option("keep", f"share of (negative) rows kept when sampling (default: {KEEP})", type=float),
        Option("modulus", "reduce the hexadecimal words modulo this integer", type=int),
    ),
)
