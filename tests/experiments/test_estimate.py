"""What a sweep will cost."""

import json
from dataclasses import replace

import pytest

from cce.experiments import estimate as module
from cce.experiments.estimate import FirstRows, estimate_cost, format_seconds
from cce.experiments.sweep import Sweep
from cce.footprint import Footprint
from cce.training.trial import Trial
from helpers.sweeps import TRAIN, tiny_runs

TABLES = Footprint("all tables", "", 100, 8, 888, 888 * 4, 100, 1704, 1704 * 4)
TRIED = Trial(trained_per_second=100.0, scored_per_second=1000.0, checkpoint_nbytes=50, tables=TABLES)


@pytest.fixture
def tried(monkeypatch):
    """As if every run trained 100 rows a second; gives the configurations that were tried."""
    configs = []
    monkeypatch.setattr(module, "try_out", lambda config, seconds: configs.append(config) or TRIED)
    return configs


def test_rows_seconds_and_disk_are_added_up(data, tmp_path, tried):
    sweep = {"methods": ["full", "cce"], "caps": [320, 640], "seeds": [0, 1]}
    found = estimate_cost(Sweep(tiny_runs(data, sweep=sweep), tmp_path / "out"), jobs=2, threads=1)
    points = {(point.series, point.cap): point for point in found.points}
    assert list(points) == [("full", None), ("cce", 320), ("cce", 640), ("pq", 320), ("pq", 640)]
    cce = points["cce", 320]
    assert (cce.num_runs, cce.num_rows) == (2, 1600)
    assert cce.seconds == pytest.approx(1600 / 100 + (6 * 100 + 100) / 1000)  # 6 validations and the test
    assert points["pq", 320].seconds == pytest.approx(0.1)
    assert found.seconds == pytest.approx(3 * cce.seconds + 2 * 0.1)
    assert found.disk_nbytes == 2 * 3 * 50 + 2 * 4 * 50  # two sources are kept, two runs are under way
    assert (found.num_runs, found.num_finished) == (10, 0)
    assert not (tmp_path / "out").exists()


def test_clusterings_and_refits_are_added(data, tmp_path, monkeypatch):
    tried = replace(TRIED, num_clusterings=3, cluster_seconds=2.0, refitted_per_second=200.0)
    monkeypatch.setattr(module, "try_out", lambda config, seconds: replace(tried, num_refits=config.refits or 0))
    series = {"refit": {"method": "cce", "refits": 2}}
    runs = tiny_runs(data, sweep={"methods": ["cce"], "caps": [320]}, series=series)
    points = {point.series: point for point in estimate_cost(Sweep(runs, tmp_path), jobs=1, threads=1).points}
    plain = 1600 / 100 + (6 * 100 + 100) / 1000 + 3 * 2.0
    assert points["cce"].seconds == pytest.approx(plain)
    # two rounds over 800 rows, a third of them for the network between, and two validations
    assert points["refit"].seconds == pytest.approx(plain + 2 * 800 / 200 + 800 / 3 / 100 + 2 * 100 / 1000)


@pytest.mark.slow
def test_params_and_bytes_are_those_of_the_records(data, tmp_path):
    series = {"half": {"method": "cce", "codebook_dtype": "bfloat16"}, "one": {"method": "hash", "unified": True}}
    sweep = Sweep(tiny_runs(data, series=series), tmp_path)
    found = {point.series: (point.num_params, point.nbytes) for point in estimate_cost(sweep, jobs=1, threads=1).points}
    records = sweep.run().records
    assert found == {record.series: (record.num_params, record.nbytes) for record in records}
    assert len(found) == 4
    again = estimate_cost(Sweep(sweep.runs, tmp_path), jobs=1, threads=1)
    assert (again.points, again.num_finished, again.seconds, again.disk_nbytes) == ([], 4, 0, 0)
    assert "4 runs, 4 of them finished" in str(again)


def test_steps_and_threads_are_those_of_the_runs(data, tmp_path, tried):
    runs = tiny_runs(data, train=TRAIN | {"max_steps": 5}, series={})
    found = estimate_cost(Sweep(runs, tmp_path), jobs=1, threads=7)
    assert [point.num_rows for point in found.points] == [5 * 64, 5 * 64]
    assert [config.threads for config in tried] == [7, 7]


def test_first_rows_stand_for_all_rows(data, tmp_path, tried):
    runs = [replace(run, config=replace(run.config, data="not there yet")) for run in tiny_runs(data)]
    whole = estimate_cost(Sweep(tiny_runs(data), tmp_path), jobs=1, threads=1)
    found = estimate_cost(Sweep(runs, tmp_path), jobs=1, threads=1, first_rows=FirstRows(data, 2.5))
    assert [config.data for config in tried] == 6 * [str(data)]
    assert [point.num_rows for point in found.points] == [2.5 * point.num_rows for point in whole.points]
    assert found.seconds == pytest.approx(2.5 * whole.seconds)
    assert "about 2.5 times as many rows. Vocabularies" in str(found)
    assert "not prepared" not in str(whole)


def test_it_is_told_in_words_and_in_plain_values(data, tmp_path, tried):
    found = estimate_cost(Sweep(tiny_runs(data), tmp_path), jobs=2, threads=1)
    assert json.loads(json.dumps(found.to_dict()))["jobs"] == 2
    text = str(found)
    assert "3 runs; about 34 s one after the other, 17 s by 2 jobs." in text
    assert "checkpoints: up to 550 B at a time" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (42.4, "42 s"), (99, "99 s"), (150, "2 min"), (7000, "1 h 57 min"), (900_000, "10 days")],
)
def test_seconds_are_told_in_units_that_one_can_read(seconds, text):
    assert format_seconds(seconds) == text
