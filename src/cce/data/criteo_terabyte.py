"""Criteo's Terabyte log: `day_0` … `day_23`, plain or gzipped, lines as in the Kaggle challenge.

As in DLRM and the paper, one may keep one negative row in eight, and reduce the words modulo a limit. The last day
is held out, one half of it for validation and one for the test.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from cce.data.criteo_kaggle import COLUMNS, READING
from cce.data.inputs import Input
from cce.data.pipeline import Job
from cce.data.split import Splitting
from cce.data.vocabulary import VocabularyRule

if TYPE_CHECKING:
    from pathlib import Path

KEEP = 0.125  # DLRM and the paper
DAY = re.compile(r"day_(\d+)(\.gz)?")


def criteo_terabyte(
    raw: Path,
    *,
    sample: str = "all",
    keep: float | None = None,
    modulus: int | None = None,
    seed: int = 0,
    splitting: Splitting | None = None,
    rule: VocabularyRule | None = None,
    max_bad_rows: int = 0,
    like: Path | None = None,
) -> Job:
    """The job of a folder of day files, or of a single one. `keep` is the share of (negative) rows that stay: 1/8."""
    if sample == "all" and keep is not None:
        raise ValueError(f"keep must be left out unless sample is rows or negatives, got {keep}.")
    keep = 1.0 if sample == "all" else KEEP if keep is None else keep
    inputs = tuple(Input(path) for path in (_days(raw) if raw.is_dir() else [raw]))
    reading = replace(READING, sample=sample, keep=keep, modulus=modulus, seed=seed)
    splitting = splitting or Splitting("last-file" if len(inputs) > 1 else "order")
    rule = rule or VocabularyRule()
    return Job("criteo-terabyte", inputs, COLUMNS, reading, splitting, rule, max_bad_rows, like)


def _days(folder: Path) -> list[Path]:
    """Day files in order; of a day that is there both plain and gzipped, the plain one."""
    days: dict[int, Path] = {}
    for path in sorted(folder.iterdir(), reverse=True):
        match = DAY.fullmatch(path.name)
        if match:
            days[int(match[1])] = path
    if not days:
        raise FileNotFoundError(f"{folder} must hold files day_0, day_1, … (or .gz), and there is none.")
    return [days[number] for number in sorted(days)]
