"""A public CTR benchmark, on generated files of exactly its form."""

import random

import pytest

from cce.data.sources.reczoo import COLUMNS, RECZOO, reczoo_job
from helpers.raw_files import rows_of, run, vocabulary_of, write_csv

DRAW = random.Random(0)
SIZES = {"train": 120, "valid": 30, "test": 40}


def write(folder):
    """Generated files; the rows of each."""
    header = ["label", *(f"I{n}" for n in range(1, 14)), *(f"C{n}" for n in range(1, 27))]
    rows = {
        f"{split}.csv": [
            [n % 2, *(DRAW.random() for _ in range(13)), *(DRAW.randrange(9) for _ in range(26))] for n in range(size)
        ]
        for split, size in SIZES.items()
    }
    for file, some in rows.items():
        write_csv(folder / file, header, some)
    return rows


def test_criteo_x1_is_split_by_its_files_and_takes_numbers_as_they_are(tmp_path):
    rows = write(tmp_path)
    data = run(RECZOO.job(tmp_path, {}), tmp_path / "out")
    assert [data.num_rows(split) for split in data.splits] == [120, 30, 40]
    assert [feature.name for feature in data.schema.features] == [*COLUMNS.categorical]
    labels = [float(label) for batch in data.loader("test", batch_size=7, shuffle=False) for label in batch.labels]
    assert labels == [row[0] for row in rows["test.csv"]]
    ids = [vocabulary_of([str(row[14 + n]) for row in rows["train.csv"]]) for n in range(26)]
    found = rows_of(data, "test")
    assert [row[1] for row in found] == [pytest.approx(row[1:14]) for row in rows["test.csv"]]
    assert [row[2] for row in found] == [
        [ids[n].get(str(row[14 + n]), 0) for n in range(26)] for row in rows["test.csv"]
    ]


def test_other_files_and_folders_are_rejected(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"train\.csv must be a file, and there is none"):
        reczoo_job(tmp_path / "nowhere")
    for split in SIZES:
        write_csv(tmp_path / f"{split}.csv", ("y", "a"), [(1, 2)])
    with pytest.raises(ValueError, match=r"train\.csv, of Criteo_x1, must have a column 'label'; it has y, a"):
        reczoo_job(tmp_path)
    write(tmp_path)
    with pytest.raises(ValueError, match=r"validation must be left out with split 'files', got 0\.2"):
        RECZOO.job(tmp_path, {"validation": 0.2})
