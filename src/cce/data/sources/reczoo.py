"""Three public CTR benchmarks of reczoo: a folder with train.csv, valid.csv and test.csv.

Columns, derived columns and minimal counts are those of the published settings: Zhu et al., "Open benchmarking for
click-through rate prediction" (CIKM 2021); https://github.com/reczoo/Datasets. Which set it is, the columns say.
"""

from __future__ import annotations

from pathlib import Path

from cce.data.preparation.job import Columns, Job, Reading, Splitting, VocabularyRule
from cce.data.raw_files import Input, read_names
from cce.data.sources.registry import Source

INTEGERS = tuple(f"I{index}" for index in range(1, 14))
WORDS = tuple(f"C{index}" for index in range(1, 27))
AVAZU = (
    *("hour", "C1", "banner_pos", "site_id", "site_domain", "site_category", "app_id", "app_domain", "app_category"),
    *("device_id", "device_ip", "device_model", "device_type", "device_conn_type"),
    *(f"C{index}" for index in range(14, 22)),
    *("weekday", "weekend"),
)
BUCKETS = tuple((name, name, "log-squared") for name in INTEGERS)
TIMES = tuple((name, "hour", name) for name in ("hour", "weekday", "weekend"))
PUBLIC_SETS = {  # columns, and the least count of a value
    "Criteo_x1": (Columns("label", WORDS, INTEGERS), 1),
    "Criteo_x4": (Columns("Label", (*INTEGERS, *WORDS), derived=BUCKETS), 10),  # setting 001
    "Avazu_x4": (Columns("click", AVAZU, derived=TIMES), 2),  # setting 001
}
FILES = {"train.csv": "train", "valid.csv": "validation", "test.csv": "test"}


def reczoo_job(folder: Path) -> Job:
    """The job of a folder of one of the public data sets."""
    inputs = tuple(Input(folder / name) for name in FILES)
    names, _ = read_names(inputs)
    found = next((each for each in PUBLIC_SETS.values() if set(each[0].used) <= set(names)), None)
    if found is None:
        known = ", ".join(PUBLIC_SETS)
        raise ValueError(f"{inputs[0]} must have the columns of one of {known}; it has {', '.join(names)}.")
    columns, min_count = found
    reading = Reading(
        names=names,
        delimiter=",",
        quoted=True,
        has_header=True,
        transforms=tuple((name, "identity") for name in columns.dense),
    )
    splitting = Splitting("files", of_files=tuple(FILES.values()))
    return Job(RECZOO.name, inputs, columns, reading, splitting, VocabularyRule(min_count))


RECZOO = Source(
    name="reczoo",
    about=f"a folder of a public CTR benchmark ({', '.join(PUBLIC_SETS)})",
    splits=("files",),
    make=lambda raw, _options: reczoo_job(raw),
)
