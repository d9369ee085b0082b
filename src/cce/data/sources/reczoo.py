"""Criteo_x1, a public CTR benchmark of reczoo: a folder with train.csv, valid.csv and test.csv.

Zhu et al., "Open benchmarking for click-through rate prediction" (CIKM 2021); https://github.com/reczoo/Datasets. Dense
values are published as they are used.
"""

from pathlib import Path

from cce.data.preparation.job import Columns, Job, Reading, Splitting
from cce.data.raw_files import Input, check_columns, read_names
from cce.data.sources.criteo import CATEGORICAL, DENSE
from cce.data.sources.registry import Source

COLUMNS = Columns("label", CATEGORICAL, DENSE)
FILES = {"train.csv": "train", "valid.csv": "validation", "test.csv": "test"}


def reczoo_job(folder: Path) -> Job:
    inputs = tuple(Input(folder / name) for name in FILES)
    names, _ = read_names(inputs)
    check_columns(f"{inputs[0]}, of Criteo_x1,", COLUMNS.used, names)
    transforms = tuple((name, "identity") for name in DENSE)
    reading = Reading(names=names, delimiter=",", quoted=True, has_header=True, transforms=transforms)
    return Job(RECZOO.name, inputs, COLUMNS, reading, Splitting("files", of_files=tuple(FILES.values())))


RECZOO = Source(
    name="reczoo",
    about="the folder of the public CTR benchmark Criteo_x1",
    splits=("files",),
    make=lambda raw, _options: reczoo_job(raw),
)
