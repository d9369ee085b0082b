"""Jobs: options that are used or rejected, and the columns that a split needs."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from cce.data.preparation.job import Columns, Job, Reading, Splitting
from cce.data.raw_files import Input

COLUMNS = Columns("y", ("user", "item"), timestamp="time", user="user")


def job_of(**changes):
    job = Job("table", (Input(Path("a.csv")),), COLUMNS, Reading(names=("y", "user", "item", "time", "day")))
    return replace(job, **changes)


def test_options_of_a_split_are_used_or_rejected():
    default = Splitting()
    assert default.adjusted(None, {}) == default
    assert default.adjusted(None, {"seed": 3, "test": 0.2}) == Splitting("random", test=0.2, seed=3)
    last_day = Splitting("order", validation=0.07, test=0.07)
    assert last_day.adjusted(None, {"test": 0.2}) == Splitting("order", validation=0.07, test=0.2)
    assert last_day.adjusted("order", {}) == Splitting("order")
    for way, name in (("order", "seed"), ("last-two", "test"), ("last-file", "validation")):
        with pytest.raises(ValueError, match=f"^{name} must be left out with split '{way}', got 5"):
            default.adjusted(way, {name: 5})


def test_columns_of_the_split_are_read_and_no_others():
    assert job_of().columns_read == Columns("y", ("user", "item"))
    assert job_of(splitting=Splitting("temporal")).columns_read.timestamp == "time"
    last_two = job_of(splitting=Splitting("last-two")).columns_read
    assert (last_two.timestamp, last_two.user) == ("time", "user")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_bad_rows": -1}, "max_bad_rows must lie in"),
        ({"inputs": ()}, "raw must hold at least one file, got none"),
        ({"reading": Reading(names=("y", "user"))}, r"a\.csv must have a column 'item'; it has y, user\."),
        ({"reading": Reading(names=("y", "user", "item", "item"))}, r"a\.csv must have one column 'item', got 2\."),
        ({"splitting": Splitting("temporal"), "columns": Columns("y", ("user",))}, "timestamp must name a column to"),
        ({"splitting": Splitting("last-two"), "columns": replace(COLUMNS, user=None)}, "user must name a column to"),
    ],
)
def test_impossible_jobs_are_rejected(changes, message):
    with pytest.raises(ValueError, match=message):
        job_of(**changes)


def test_as_many_processes_as_pay(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3})
    for size, jobs in ((100, 1), (130 << 20, 2), (999 << 20, 4)):
        with (tmp_path / "a.csv").open("wb") as file:
            file.truncate(size)
        assert job_of(inputs=(Input(tmp_path / "a.csv"),)).useful_jobs() == jobs


def test_a_key_changes_with_the_files_and_the_options(tmp_path):
    (tmp_path / "a.csv").write_text("y,user\n")
    job = job_of(inputs=(Input(tmp_path / "a.csv"),))
    keys = [job.key(), replace(job, max_bad_rows=1).key()]
    os.utime(tmp_path / "a.csv", ns=(1, 1))
    keys.append(job.key())
    assert len(set(keys)) == 3
    assert job.key() == keys[-1]
