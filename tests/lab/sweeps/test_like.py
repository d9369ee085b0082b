"""Studies on top of another recipe."""

from pathlib import Path

import pytest

from cce.training import check_names
from cce_lab.sweeps.recipe import OF_TABLES, make_recipe, on_base, read_recipe
from cce_lab.sweeps.runs import list_runs

RECIPES = Path(__file__).resolve().parents[3] / "recipes"
STUDY = {
    "train": {"preset": "paper", "lr": 0.005, "model_options": {"bottom": [32]}, "threads": 1, "cluster_at": [0.5]},
    "sweep": {"methods": ["full"], "caps": [10], "seeds": [7]},
    "series": {"cce, 2": {"method": "cce", "method_options": {"num_columns": 2}}},
    "data": {"name": "study"},
    "expected": {"full_bce": 0.4},
}
BASE = {
    "train": {"lr": 0.1, "optimizer": "sgd", "epochs": 10, "preset": "tuned", "cluster_at": "best-of-10-epochs"},
    "sweep": {"methods": ["hash"], "caps": [100, 200]},
    "data": {"name": "kaggle", "prepare": "criteo-kaggle train.txt"},
}


def test_the_base_is_the_others_and_what_is_studied_stays():
    recipe = on_base(make_recipe("columns", STUDY), make_recipe("kaggle", BASE))
    assert (recipe.name, recipe.data, recipe.caps) == ("columns-kaggle", BASE["data"], (100, 200))
    assert (list(recipe.all_series()), recipe.seeds, recipe.expected) == (["full", "cce, 2"], (7,), {})
    # neither the small networks of the study, nor two ways to say when to cluster
    assert recipe.train == {"lr": 0.1, "optimizer": "sgd", "epochs": 10, "preset": "paper", "cluster_at": [0.5]}
    runs = list_runs(recipe, Path("data"), {"a": 5000})
    assert [(run.series, run.config.cap) for run in runs] == [("full", None), ("cce, 2", 100), ("cce, 2", 200)]


def test_what_a_study_says_of_rows_and_refits_stays():
    own = {"min_count": 3, "refits": 2}
    recipe = on_base(make_recipe("codes", STUDY | {"train": own}), make_recipe("kaggle", BASE))
    assert own.items() <= recipe.train.items()


def test_what_a_study_keeps_are_options_of_runs():
    check_names(OF_TABLES, "OF_TABLES")


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((RECIPES / "studies").glob("*.toml")), ids=lambda path: path.stem)
def test_every_study_gives_runs_on_top_of_kaggle(path):
    study = read_recipe(path)
    recipe = on_base(study, read_recipe(RECIPES / "kaggle.toml"))
    runs = list_runs(recipe, Path("data"), {"ad": 300_001, "user": 20_001, "site": 501})
    assert {run.series for run in runs} == set(study.all_series())
    assert {run.config.optimizer for run in runs} <= {"sgd", *(own.get("optimizer") for own in study.series.values())}
