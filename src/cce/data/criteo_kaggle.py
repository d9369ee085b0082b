"""Criteo's Kaggle challenge: `train.txt`, seven days in order, without a header.

A line has a label, 13 integers and 26 hexadecimal words, with tabs between them. As in the paper, the last day is
held out, one half of it for validation and one for the test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cce.data.inputs import Input
from cce.data.pipeline import Job
from cce.data.spec import Columns, Reading
from cce.data.split import Splitting
from cce.data.vocabulary import VocabularyRule

if TYPE_CHECKING:
    from pathlib import Path

DENSE = tuple(f"I{number}" for number in range(1, 14))
CATEGORICAL = tuple(f"C{number}" for number in range(1, 27))
NUM_DAYS = 7
COLUMNS = Columns("label", CATEGORICAL, DENSE)
READING = Reading(names=("label", *DENSE, *CATEGORICAL), is_hex=True)
LAST_DAY = Splitting("order", validation=0.5 / NUM_DAYS, test=0.5 / NUM_DAYS)


def criteo_kaggle(
    raw: Path,
    *,
    splitting: Splitting | None = None,
    rule: VocabularyRule | None = None,
    max_bad_rows: int = 0,
    like: Path | None = None,
) -> Job:
    """The job of `train.txt` (or `train.txt.gz`), or of the folder that holds it."""
    if raw.is_dir():
        raw = next((raw / name for name in ("train.txt", "train.txt.gz") if (raw / name).exists()), raw / "train.txt")
    return Job(
        "criteo-kaggle",
        (Input(raw),),
        COLUMNS,
        READING,
        splitting or LAST_DAY,
        rule or VocabularyRule(),
        max_bad_rows,
        like,
    )
