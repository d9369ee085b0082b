"""Choices: the file, the nearest budget, and what they were made for."""

from dataclasses import replace
from pathlib import Path

import pytest

from cce.data import PreparedData
from cce_lab.sweeps.recipe import make_recipe
from cce_lab.sweeps.runs import list_runs
from cce_lab.sweeps.tuning import Choice, Choices, data_checksum, recipe_checksum, tuned_series
from helpers.runs import tiny_data
from helpers.sweeps import TRAIN, tiny_values

RECIPE = make_recipe("tiny", tiny_values(tune={"lr": [0.1]}))


def choice(series="cce", cap=320, lr=0.2):
    return Choice(series, cap, {"lr": lr}, "bce", 0.5, 2, recipe_checksum(RECIPE, series), [])


CHOICES = Choices("data", (choice(cap=100, lr=0.1), choice(cap=10_000, lr=0.2), choice("full", None, 0.3)))


@pytest.mark.parametrize(("cap", "lr"), [(10, 0.1), (990, 0.1), (1010, 0.2), (10**6, 0.2)])
def test_a_run_takes_the_choice_of_the_budget_nearest_by_ratio(cap, lr):
    assert CHOICES.options_for("cce", cap) == {"lr": lr}


def test_full_tables_have_one_choice_and_an_unknown_series_none():
    assert CHOICES.options_for("full", None) == {"lr": 0.3}
    assert CHOICES.options_for("pq", 320) == {}


def test_runs_take_them_and_others_stay_as_they_were():
    runs = list_runs(RECIPE, Path("data"), {"a": 500, "b": 50}, choices=CHOICES)
    assert {run.series: run.config.lr for run in runs} == {"full": 0.3, "cce": 0.1, "pq": TRAIN["lr"]}


def test_the_file_is_read_as_it_was_written(tmp_path):
    assert Choices.read(tmp_path) is None
    CHOICES.write(tmp_path)
    assert Choices.read(tmp_path) == CHOICES
    text = (tmp_path / "tuned.json").read_text()
    for damaged in (text[:-40], text.replace('"version": 1', '"version": 2'), "[]", text.replace('"lr"', '"lr", 3')):
        (tmp_path / "tuned.json").write_text(damaged)
        with pytest.raises(ValueError, match=r"tuned.json must be as `cce tune` wrote it: "):
            Choices.read(tmp_path)


def test_another_recipe_or_other_data_is_rejected():
    here = Path("out")
    CHOICES.check(RECIPE, "data", here)
    more = replace(RECIPE, seeds=(0, 1), caps=(320, 640), methods=("full", "cce", "hash"))
    CHOICES.check(more, "data", here)  # seeds, caps and series may be added
    with pytest.raises(ValueError, match="out must be of this data set, got choices made on another: run `cce tune` a"):
        CHOICES.check(RECIPE, "other", here)
    for change in ({"train": TRAIN | {"batch_size": 32}}, {"tune": replace(RECIPE.tune, lr=(0.1, 0.2))}):
        with pytest.raises(ValueError, match="must be of this recipe, got a choice for 'cce' made with another"):
            CHOICES.check(replace(RECIPE, **change), "data", here)


def test_series_that_start_from_others_are_not_tuned():
    assert tuned_series(RECIPE) == ["full", "cce"]
    assert tuned_series(RECIPE, ["pq", "cce"]) == ["cce"]


def test_the_checksum_of_data_is_that_of_its_rows_and_not_of_its_place(data, tmp_path):
    same = tiny_data(tmp_path / "moved")
    other = tiny_data(tmp_path / "other", seed=1)
    here, moved, seed = (data_checksum(PreparedData.open(path)) for path in (data, same, other))
    assert here == moved != seed
