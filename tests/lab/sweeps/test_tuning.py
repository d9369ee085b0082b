"""Tuning: a planted best is found, on validation rows only, whatever happens on the way."""

import json
import math

import pytest

from cce.data import PreparedData
from cce.records import RunRecord, read_records
from cce.training.phases import TrainPhase
from cce_lab import Experiment
from cce_lab.sweeps.recipe import make_recipe
from cce_lab.sweeps.runs import best_loss, choose, list_trials
from helpers.sweeps import TRAIN, tiny_values

FAST = {
    "train": TRAIN | {"validations_per_epoch": 1, "threads": 1},
    "sweep": {"methods": ["full", "hash"], "caps": [160, 320, 640]},
    "series": {},
    "tune": {"lr": [1e-7, 0.02, 1e-6], "caps": [320], "series": {"full": {"lr": [0.02, 1e-7]}}},
}


def trials_of(data, **changes):
    return list_trials(make_recipe("tiny", FAST | changes), PreparedData.open(data))


def recipe_file(folder, tune):
    lines = [f"{name} = {json.dumps(value)}" for name, value in FAST["train"].items() if not isinstance(value, dict)]
    text = "\n".join(["[train]", *lines, "model_options = { bottom = [8], top = [8] }", "[tune]", tune])
    path = folder / "tiny.toml"
    path.write_text(text + '\n[sweep]\nmethods = ["full", "hash"]\ncaps = [320]\nseeds = [0, 1]\n')
    return path


@pytest.mark.slow
def test_a_sweep_runs_with_the_planted_learning_rate_also_after_an_interruption(data, tmp_path, monkeypatch):
    experiment = Experiment(recipe_file(tmp_path, "lr = [1e-7, 0.02]"), data=data, out=tmp_path / "out")
    train_step, seen = TrainPhase.train_step, [0]

    def interrupted(*args):
        seen[0] += 1
        if seen[0] == 20:
            raise KeyboardInterrupt
        return train_step(*args)

    monkeypatch.setattr(TrainPhase, "train_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        experiment.sweep(progress=False)
    monkeypatch.undo()
    assert [len(sweep.left()) for sweep in experiment.planned(progress=False)] == [4, 4]
    assert [record.config["lr"] for record in experiment.sweep(progress=False).records] == [0.02] * 4
    assert [len(sweep.left()) for sweep in experiment.planned(progress=False)] == [0, 0]
    trials = read_records(tmp_path / "out" / "tune" / "records.jsonl")
    assert len(trials) == 4
    assert all(record.scores == {} and record.config["test"] is False for record in trials)


@pytest.mark.slow
def test_a_learning_rate_that_diverges_is_the_worst(data, tmp_path):
    experiment = Experiment(recipe_file(tmp_path, "lr = [1e25, 0.02]"), data=data, out=tmp_path / "out", only=["full"])
    assert {record.config["lr"] for record in experiment.sweep(progress=False).records} == {0.02}


def test_every_combination_is_tried_at_the_wanted_budget(data):
    found = [(trial.run.name, trial.run.config.lr, trial.run.config.cap) for trial in trials_of(data)]
    assert found[:2] == [("full-lr0.02-seed0", 0.02, None), ("full-lr1e-07-seed0", 1e-7, None)]
    assert [name for name, _, _ in found[2:]] == [f"hash-cap320-lr{lr}-seed0" for lr in ("1e-07", "0.02", "1e-06")]
    two = trials_of(data, tune={"lr": [0.1, 0.2], "weight_decay": [0.0, 1e-5]})
    assert [trial.options for trial in two if trial.run.series == "hash"] == [
        *({"lr": 0.1, "weight_decay": decay} for decay in (0.0, 1e-5)),
        *({"lr": 0.2, "weight_decay": decay} for decay in (0.0, 1e-5)),
    ]
    assert {trial.cap for trial in two} == {None, 320}  # the middle one


def test_what_a_series_sets_itself_and_what_starts_from_another_is_not_tuned(data):
    recipe = make_recipe("tiny", tiny_values() | {"tune": {"lr": [0.1, 0.2]}})
    assert {trial.run.series for trial in list_trials(recipe, PreparedData.open(data))} == {"full", "cce"}
    fixed = {"mine": {"method": "hash", "lr": 0.5}}
    assert [trial.options for trial in trials_of(data, series=fixed) if trial.run.series == "mine"] == [{}]


def record(name, score, metric="bce"):
    return RunRecord(
        "hash", 0, 1, 4, {}, 1.0, curve=[{"step": 1, metric: math.nan}, {"step": 2, metric: score}], name=name
    )


def test_the_best_validation_is_chosen_and_of_equals_the_first(data):
    trials = trials_of(data)
    scores = dict(zip((trial.run.name for trial in trials), (0.7, 0.6, 0.5, 0.4, 0.4), strict=True))
    records = [record(name, score) for name, score in scores.items()]
    assert choose(trials, records, {}) == {("full", None): {"lr": 1e-7}, ("hash", 320): {"lr": 0.02}}
    assert (best_loss(record("a", 0.7, "auc"), "auc"), best_loss(None, "bce")) == (-0.7, math.inf)


def test_failures_are_named_and_if_all_diverge_it_is_one_line(data):
    trials = trials_of(data)
    with pytest.raises(ValueError, match=r"1 trials failed, see their error.txt: a: TypeError"):
        choose(trials, [], {"a": "TypeError: colour", "b": "DivergedError: loss"})
    with pytest.raises(ValueError, match=r"all trials of 'full' diverged: \[tune\] must have a lower lr\."):
        choose(trials, [], {"b": "DivergedError: loss"})


@pytest.mark.parametrize(
    ("tune", "message"),
    [
        ({"epochs": [2]}, r"\[tune\] has a part that is not known, 'epochs': there are lr, weight_decay"),
        ({"lr": 0.1}, r"\[tune\] lr must be a list, got 0.1"),
        ({"lr": []}, r"\[tune\] lr must be a list of at least one value, got \[\]"),
        ({"caps": [7]}, r"\[tune\] caps must be among those of the sweep \(160, 320, 640\), got 7"),
        ({"series": {"ccee": {}}}, r"\[tune\] series has a part that is not known, 'ccee': there are full, hash"),
    ],
)
def test_what_cannot_be_tuned_is_rejected(tune, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make_recipe("tiny", FAST | {"tune": tune})


def test_rows_to_choose_by_are_needed(data):
    prepared = PreparedData.open(data)
    del prepared.manifest["splits"]["validation"]
    with pytest.raises(ValueError, match=r"data must have validation rows to tune on, got train, test only\."):
        list_trials(make_recipe("tiny", FAST), prepared)
