"""The public CTR benchmarks, on generated files of exactly their form."""

import math
import random
from datetime import date

import pytest

from cce.data.preparation.job import VocabularyRule
from cce.data.sources import reczoo
from cce.data.sources.reczoo import PUBLIC_SETS, RECZOO, reczoo_job
from helpers.raw_files import rows_of, run, vocabulary_of, write_csv

INTEGERS, WORDS = [f"I{n}" for n in range(1, 14)], [f"C{n}" for n in range(1, 27)]
AVAZU = [*("id", "click", "hour"), *(name for name in reczoo.AVAZU if name not in ("hour", "weekday", "weekend"))]
DRAW = random.Random(0)


def word(n=9):
    return f"{DRAW.randrange(n):08x}"


def criteo_x1():
    return ["label", *INTEGERS, *WORDS], lambda n: [
        n % 2,
        *(DRAW.random() for _ in INTEGERS),
        *(DRAW.randrange(9) for _ in WORDS),
    ]


def criteo_x4():
    integers = lambda: [DRAW.choice(["", -1, 0, 1, 2, 3, 50, 9000]) for _ in INTEGERS]  # noqa: E731
    return ["Label", *INTEGERS, *WORDS], lambda n: [n % 2, *integers(), *(DRAW.choice(["", word()]) for _ in WORDS)]


def avazu_x4():
    return AVAZU, lambda n: [n, n % 2, f"1410{21 + n % 10}{n % 24:02d}", *(word() for _ in AVAZU[3:])]


FORMS = {
    "Criteo_x1": criteo_x1,
    "Criteo_x4": criteo_x4,
    "Avazu_x4": avazu_x4,
}
SIZES = {"train": 120, "valid": 30, "test": 40}


def write(folder, name):
    """Generated files; the rows of each split."""
    header, row = FORMS[name]()
    rows = {f"{split}.csv": [row(n) for n in range(size)] for split, size in SIZES.items()}
    for file, some in rows.items():
        write_csv(folder / file, header, some)
    return header, rows


def test_all_public_sets_are_tested():
    assert list(FORMS) == list(PUBLIC_SETS)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_a_folder_becomes_what_its_published_setting_says(tmp_path, name):
    header, rows = write(tmp_path, name)
    columns, min_count = PUBLIC_SETS[name]
    job = RECZOO.job(tmp_path, {})
    assert job.rule == VocabularyRule(min_count)
    data = run(job, tmp_path / "out")
    assert [data.num_rows(split) for split in data.splits] == [120, 30, 40]
    assert [feature.name for feature in data.schema.features] == [*columns.categorical]
    labels = [float(label) for batch in data.loader("test", batch_size=7, shuffle=False) for label in batch.labels]
    assert labels == [row[header.index(columns.label)] for row in rows["test.csv"]]


@pytest.mark.slow
def test_criteo_x1_takes_numbers_as_they_are(tmp_path):
    _, rows = write(tmp_path, "Criteo_x1")
    data = run(reczoo_job(tmp_path), tmp_path / "out")
    ids = [vocabulary_of([str(row[14 + n]) for row in rows["train.csv"]]) for n in range(26)]
    found = rows_of(data, "test")
    assert [row[1] for row in found] == [pytest.approx(row[1:14]) for row in rows["test.csv"]]
    assert [row[2] for row in found] == [
        [ids[n].get(str(row[14 + n]), 0) for n in range(26)] for row in rows["test.csv"]
    ]


@pytest.mark.slow
def test_criteo_x4_cuts_integers_into_buckets_and_leaves_rare_values_out(tmp_path):
    _, rows = write(tmp_path, "Criteo_x4")

    def bucket(value):
        number = 0 if value == "" else value
        return str(math.floor(math.log(number) ** 2) if number > 2 else number).replace(
            "0", "", 1 if number == 0 else 0
        )

    translated = {file: [[*map(bucket, row[1:14]), *row[14:]] for row in some] for file, some in rows.items()}
    ids = [vocabulary_of([row[n] for row in translated["train.csv"]], min_count=10) for n in range(39)]
    data = run(reczoo_job(tmp_path), tmp_path / "out")
    found = [row[2] for row in rows_of(data, "validation")]
    assert found == [[ids[n].get(row[n] or None, 0) for n in range(39)] for row in translated["valid.csv"]]
    assert data.schema.dense == ()


def test_avazu_x4_has_hour_weekday_and_weekend(tmp_path):
    _, rows = write(tmp_path, "Avazu_x4")
    data = run(reczoo_job(tmp_path), tmp_path / "out")
    names = [feature.name for feature in data.schema.features]
    assert names == ["hour", *AVAZU[3:], "weekday", "weekend"]

    def parts(row):
        day = date(2014, int(row[2][2:4]), int(row[2][4:6]))
        return row[2][6:8], day.strftime("%w"), str(int(day.weekday() >= 5))

    ids = [vocabulary_of(column, min_count=2) for column in zip(*map(parts, rows["train.csv"]), strict=True)]
    found = [[row[2][names.index(name)] for name in ("hour", "weekday", "weekend")] for row in rows_of(data, "test")]
    assert found == [[ids[n].get(part, 0) for n, part in enumerate(parts(row))] for row in rows["test.csv"]]


def test_other_files_and_folders_are_rejected(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"train\.csv must be a file, and there is none"):
        reczoo_job(tmp_path / "nowhere")
    for split in SIZES:
        write_csv(tmp_path / f"{split}.csv", ("y", "a"), [(1, 2)])
    with pytest.raises(ValueError, match=r"must have the columns of one of Criteo_x1, .*Avazu_x4; it has y, a"):
        reczoo_job(tmp_path)
    write(tmp_path, "Criteo_x1")
    with pytest.raises(ValueError, match=r"validation must be left out with split 'files', got 0\.2"):
        RECZOO.job(tmp_path, {"validation": 0.2})
