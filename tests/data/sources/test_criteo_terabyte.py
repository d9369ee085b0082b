"""Criteo's Terabyte log: days in order, plain or gzipped, sampled and reduced by modulus."""

import gzip

import pytest
from benchmarks.criteo_text import write_criteo_text

from cce.data.sources.criteo import criteo_terabyte_job
from helpers.raw_files import criteo_lines, rows_of, run, vocabulary_of


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("days")
    for day in (0, 2, 10):
        write_criteo_text(folder / f"day_{day}", 300, seed=day)
    text = (folder / "day_2").read_bytes()
    (folder / "day_2.gz").write_bytes(gzip.compress(text))
    (folder / "day_2").unlink()
    (folder / "notes.txt").write_text("not a day")
    return folder


def lines_of(raw, day):
    if day == 2:
        return [line.split("\t") for line in gzip.decompress((raw / "day_2.gz").read_bytes()).decode().split("\n")[:-1]]
    return criteo_lines(raw / f"day_{day}")


@pytest.mark.slow
def test_days_come_in_the_order_of_their_numbers_and_the_last_is_held_out(raw, tmp_path):
    job = criteo_terabyte_job(raw)
    assert [input_.path.name for input_ in job.inputs] == ["day_0", "day_2.gz", "day_10"]
    data = run(job, tmp_path / "out")
    assert [data.num_rows(split) for split in data.splits] == [600, 150, 150]
    labels = [float(line[0]) for day in (0, 2, 10) for line in lines_of(raw, day)]
    assert [row[0] for split in data.splits for row in rows_of(data, split)] == labels


@pytest.mark.slow
def test_negatives_are_sampled_and_positives_all_kept(raw, tmp_path):
    data = run(criteo_terabyte_job(raw, sample="negatives", keep=0.125), tmp_path / "out")
    labels = [row[0] for split in data.splits for row in rows_of(data, split)]
    wanted = sum(line[0] == "1" for day in (0, 2, 10) for line in lines_of(raw, day))
    assert labels.count(1) == wanted
    assert labels.count(0) == pytest.approx((900 - wanted) / 8, abs=40)
    assert data.manifest["rows"] == {"read": 900, "left_out": 900 - len(labels), "malformed": 0}


@pytest.mark.slow
def test_rows_are_sampled_by_seed(raw, tmp_path):
    data = [
        run(criteo_terabyte_job(raw, sample="rows", keep=0.3, seed=s), tmp_path / f"{n}")
        for n, s in enumerate((0, 0, 1))
    ]
    sizes = [sum(some.num_rows(split) for split in some.splits) for some in data]
    assert sizes[0] == sizes[1] == pytest.approx(270, abs=60)
    assert data[0].manifest["files"] == data[1].manifest["files"] != data[2].manifest["files"]


@pytest.mark.slow
def test_words_are_reduced_by_modulus_before_they_are_counted(raw, tmp_path):
    data = run(criteo_terabyte_job(raw, modulus=10), tmp_path / "out")
    assert max(data.schema.vocabulary_sizes.values()) == 12  # unseen, missing, and ten values
    lines = [line for day in (0, 2) for line in lines_of(raw, day)]
    reduced = [int(line[14 + 2], 16) % 10 if line[14 + 2] else None for line in lines]
    ids = vocabulary_of(reduced)
    assert [row[2][2] for row in rows_of(data, "train")] == [ids[value] for value in reduced]
