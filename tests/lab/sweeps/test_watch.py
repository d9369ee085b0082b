"""How far a sweep is."""

from dataclasses import replace

import pytest

from cce_lab.sweeps.running import Sweep, Watch, planned
from helpers.made_records import made_record
from helpers.sweeps import tiny_runs

LINE = '{"kind": "validation", "step": 4, "bce": 0.5}\n'


@pytest.fixture
def sweep(data, tmp_path):
    return Sweep(tiny_runs(data, series={"cce": {"method": "cce-paper"}}), tmp_path)


def put(sweep, series, **files):
    run = next(run for run in sweep.runs if run.series == series)
    sweep.folder(run).path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (sweep.folder(run).path / f"{name}.jsonl").write_text(text)


def test_epochs_are_counted_over_all_runs(sweep):
    watch = Watch(sweep, shown=False)
    assert watch._bar.total == 4
    assert watch._look() == 0
    put(sweep, "full", record='{"name": "full-seed0"}\n')
    put(sweep, "cce", metrics=LINE * 2 + '{"kind": "train", "step": 5}\n')  # of three validations an epoch
    assert watch._look() == pytest.approx(2 + 2 / 3)
    put(sweep, "cce", metrics=LINE * 12)
    assert watch._look() == pytest.approx(2 + 2)


def test_a_run_without_training_counts_for_little(data):
    assert [planned(run) for run in tiny_runs(data)] == [2, 2, 0.1]


def test_records_are_gathered_while_it_looks_and_written_only_if_there_is_a_new_one(sweep):
    watch, path = Watch(sweep, shown=False), sweep.out / "records.jsonl"
    watch._look()
    first = path.stat()
    assert path.read_text() == ""
    watch._look()
    assert path.stat().st_mtime_ns == first.st_mtime_ns
    put(sweep, "full", record='{"name": "full-seed0"}\n')
    watch._look()
    assert path.read_text() == '{"name": "full-seed0"}\n'


def test_each_run_is_reported_once_when_it_finishes(sweep):
    reported = []
    put(sweep, "full", record=made_record("full", None, name="full-seed0").to_json())
    watch = Watch(sweep, shown=False, report=lambda record, count: reported.append((record.name, count)))
    watch._look()
    assert reported == []  # it had finished before
    put(sweep, "cce", record=made_record("cce", 320, name="cce-cap320-seed0").to_json())
    watch._look()
    watch._look()
    assert reported == [("cce-cap320-seed0", "2 of 2")]


def test_time_left_is_told_from_what_is_done_now_and_not_before(sweep):
    put(sweep, "full", record='{"name": "full-seed0"}\n')
    with Watch(sweep, shown=False) as watch:
        assert watch._bar.initial == 2
    assert not watch._thread.is_alive()


def test_the_bar_shows_runs_epochs_and_time_left(sweep, capsys, monkeypatch):
    watch = Watch(replace_terminal(sweep, monkeypatch), shown=True)
    with watch:
        put(sweep, "full", record='{"name": "full-seed0"}\n')
    shown = capsys.readouterr().err
    assert "0 of 2 runs:   0%" in shown
    assert "1 of 2 runs:  50%" in shown
    assert "2.0/4.0 epochs" in shown
    assert " left]" in shown


def replace_terminal(sweep, monkeypatch):
    """As if the error stream were a terminal: elsewhere no bar is shown."""
    import sys

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    return sweep


def test_another_number_of_validations_is_another_share(data, tmp_path):
    runs = [replace(run, config=replace(run.config, validations_per_epoch=4)) for run in tiny_runs(data)]
    sweep = Sweep(runs, tmp_path)
    put(sweep, "cce", metrics=LINE)
    assert Watch(sweep, shown=False)._look() == 0.25
