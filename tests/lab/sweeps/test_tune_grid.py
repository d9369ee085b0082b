"""`[tune]`: what is read, what is tried for a series, and what is rejected."""

import pytest

from cce_lab.sweeps.recipe import make_recipe
from cce_lab.sweeps.tune_grid import TuneGrid, make_grid
from helpers.sweeps import tiny_values


def test_a_series_may_have_values_of_its_own():
    grid = make_grid({"lr": [0.1], "seeds": [0, 1], "series": {"cce": {"lr": [0.2, 0.3]}}}, "the recipe")
    assert (grid.of_series("cce").lr, grid.of_series("cce").seeds) == ((0.2, 0.3), (0, 1))
    assert grid.of_series("full").lr == (0.1,)


def test_what_a_series_sets_itself_is_not_tuned():
    grid = TuneGrid(lr=(0.1, 0.2), weight_decay=(0.0, 1e-5), start_scale=("dlrm",))
    assert grid.axes({"method": "cce", "weight_decay": 0.3}) == {"lr": (0.1, 0.2), "start_scale": ("dlrm",)}


@pytest.mark.parametrize(
    ("asked", "epochs", "rungs"),
    [((), 8, (2, 8)), ((), 1, (1,)), ((1, 2), 8, (1, 2)), ((2, 8), 4, (2, 4)), ((2, 8), 1, (1,))],
)
def test_short_runs_come_first_and_none_is_longer_than_the_recipes(asked, epochs, rungs):
    assert TuneGrid(epochs=asked).rungs(epochs) == rungs


@pytest.mark.parametrize(
    ("tune", "message"),
    [
        ({"lrs": [1]}, r"the recipe \[tune\] may have lr, weight_decay, start_scale, .*; got 'lrs'."),
        ({"lr": 0.1}, r"\[tune\] lr must be a list of at least one value, got 0.1."),
        ({"lr": []}, r"\[tune\] lr must be a list of at least one value, got \[\]."),
        ({"lr": ["0.1"]}, r"\[tune\] lr must be a number, got '0.1' of type str."),
        ({"lr": [-1.0]}, r"\[tune\] lr must be a finite number of at least 0, got -1.0."),
        ({"start_scale": ["dlrn"]}, r"\[tune\] start_scale must be one of auto, uniform, dlrm, zero, or a number"),
        ({"epochs": [4, 2]}, r"\[tune\] epochs must be distinct values, rising, got \[4, 2\]."),
        ({"seeds": [0, 0]}, r"\[tune\] seeds must be distinct values, got \[0, 0\]."),
        ({"factor": 1}, r"\[tune\] factor must lie in \[2, "),
        ({"caps": [321]}, r"\[tune\] caps must be among those of the sweep \(320\), got 321."),
        ({"series": {"ccee": {}}}, r"\[tune\] series must be those of the recipe \(full, cce, pq\), got 'ccee'."),
        ({"series": {"cce": {"lr": []}}}, r'\[tune.series."cce"\] lr must be a list of at least one value'),
        ({"series": {"cce": 3}}, "series must be tables of names and values, got {'cce': 3}."),
    ],
)
def test_what_is_wrong_is_rejected(tune, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make_recipe("tiny", tiny_values(tune=tune), where="the recipe")
