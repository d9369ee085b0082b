"""What a recipe tells a report."""

from cce.report.plans import num_planned, read_plan, series_by_name

PLAN = {
    "sweep": {"methods": ["full", "cce", "hash"], "caps": [500, 1000, 2000], "seeds": [0, 1]},
    "series": {"CCE, half": {"method": "cce"}, "pq": {"method": "pq", "caps": [500], "start_from": "full"}},
}


def test_runs_are_counted_for_each_series_cap_and_seed():
    assert num_planned(PLAN) == 2 * (1 + 3 + 3 + 3 + 1)
    assert num_planned({}) == 0
    assert num_planned({"sweep": {"methods": ["full"]}}) == 1
    assert num_planned({"sweep": 5, "series": "x"}) == 0


def test_a_run_is_known_by_its_name():
    assert series_by_name("cce-half-cap500-seed0", PLAN) == "CCE, half"
    assert series_by_name("cce-cap500-seed0", PLAN) == "cce"
    assert series_by_name("pq-cap500-seed1", PLAN) == "pq"
    assert series_by_name("robe-cap500-seed1", PLAN) == ""
    assert series_by_name("cce-cap500-seed0", {}) == ""


def test_what_is_not_toml_is_no_plan():
    assert read_plan("[sweep") == {}
    assert read_plan("a = 1") == {"a": 1}
