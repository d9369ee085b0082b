"""Criteo's Kaggle challenge: `train.txt`, seven days in order, without a header.

A line has a label, 13 integers and 26 hexadecimal words, with tabs between them. As in the paper, the last day is
held out, one half of it for validation and one for the test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cce.data.prepare.columns import Columns, Reading
from cce.data.prepare.inputs import Input
from cce.data.prepare.job import Job, Splitting
from cce.data.sources.registry import Source

if TYPE_CHECKING:
    from pathlib import Path

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
    about="train.txt of Criteo's Kaggle challenge: label, 13 integers, 26 hexadecimal words",
    example="cce prepare criteo-kaggle train.txt runs/kaggle --min-count 2",
    splits=("order", "random"),
    default_split="the last day, in halves",
    make=lambda raw, _options: criteo_kaggle_job(raw),
    reuse=lambda raw, _columns, _reading: criteo_kaggle_job(raw),
)
