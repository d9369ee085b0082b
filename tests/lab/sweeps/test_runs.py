"""The runs of a recipe: how many, in which order, with which options."""

import tomllib

import pytest

from cce_lab.sweeps.recipe import make_recipe
from cce_lab.sweeps.runs import list_runs

VOCABULARIES = {"user": 1000, "item": 200, "day": 7}
RECIPE = tomllib.loads(
    """
    [train]
    embedding_dim = 8
    epochs = 3
    [sweep]
    methods = ["cce", "full"]
    caps = [16, 32, 640]
    seeds = [1, 2]
    [series."pq tuned"]
    method = "pq"
    start_from = "full"
    epochs = 0
    caps = [320]
    [series.again]
    method = "cce"
    start_from = "cce"
    caps = [640]
    """
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return list_runs(make_recipe("test", RECIPE), tmp_path_factory.getbasetemp() / "data", VOCABULARIES)


def test_sources_come_first_and_then_one_seed_after_the_other(runs):
    assert [run.name for run in runs] == [
        *("cce-cap640-seed1", "full-seed1", "cce-cap640-seed2", "full-seed2"),
        *("cce-cap16-seed1", "cce-cap32-seed1", "pq-tuned-cap320-seed1", "again-cap640-seed1"),
        *("cce-cap16-seed2", "cce-cap32-seed2", "pq-tuned-cap320-seed2", "again-cap640-seed2"),
    ]


def test_each_run_has_the_options_of_all_of_its_series_and_its_own(runs, tmp_path):
    run = next(run for run in runs if run.name == "pq-tuned-cap320-seed2")
    config = run.config
    assert (config.method, config.cap, config.seed, config.epochs, config.embedding_dim) == ("pq", 320, 2, 0, 8)
    assert (run.series, run.source, config.start_from) == ("pq tuned", "full-seed2", "full-seed2")
    assert run.placed(tmp_path).config.start_from == str(tmp_path / "full-seed2")
    full = next(run for run in runs if run.name == "full-seed1")
    assert (full.config.cap, full.source, full.num_params) == (None, None, 1207 * 8)
    assert full.placed(tmp_path) is full


def test_a_series_starts_from_the_run_of_the_same_budget(runs):
    assert {run.source for run in runs if run.series == "again"} == {"cce-cap640-seed1", "cce-cap640-seed2"}


def test_budgets_that_give_the_same_tables_are_run_once():
    recipe = RECIPE | {"sweep": {"methods": ["cce"], "caps": [1, 2, 8, 15, 64]}, "series": {}}
    found = list_runs(make_recipe("test", recipe), "data", VOCABULARIES)
    assert [run.name for run in found] == ["cce-cap1-seed0", "cce-cap64-seed0"]


def test_a_source_that_has_no_such_budget_is_rejected():
    series = {"again": RECIPE["series"]["again"] | {"caps": [64]}}
    with pytest.raises(ValueError, match="start_from of 'again' needs a run cce-cap64-seed1, but its series has no"):
        list_runs(make_recipe("test", RECIPE | {"series": series}), "data", VOCABULARIES)


def test_an_unknown_method_and_an_unknown_option_are_rejected():
    recipe = RECIPE | {"sweep": {"methods": ["cees"], "caps": [64]}, "series": {}}
    with pytest.raises(ValueError, match=r"method must be one of .*; got 'cees'"):
        list_runs(make_recipe("test", recipe), "data", VOCABULARIES)
    recipe["sweep"]["methods"] = ["cce"]
    recipe["train"] = RECIPE["train"] | {"method_options": {"num_colums": 3}}
    with pytest.raises(TypeError, match="method 'cce' has no option 'num_colums'; its options are"):
        list_runs(make_recipe("test", recipe), "data", VOCABULARIES)


def test_a_series_may_have_bytes_of_its_own_instead_of_caps(tmp_path):
    values = {
        "sweep": {"caps": [320]},
        "series": {
            "codes": {"method": "quantized", "nbytes": 20_000},
            "clustered": {"method": "cce", "start_from": "codes", "epochs": 0},
        },
    }
    codes, clustered = list_runs(make_recipe("test", values), tmp_path, VOCABULARIES)
    assert (codes.name, codes.config.nbytes, codes.config.cap) == ("codes-seed0", 20_000, None)
    assert (clustered.source, clustered.config.cap, clustered.config.nbytes) == ("codes-seed0", 320, None)
