"""Tuning: a planted best is found, on validation rows only, whatever happens on the way."""

import math
from dataclasses import replace

import pytest

from cce.data import PreparedData
from cce.records import RunRecord, read_records
from cce.training.phases import TrainPhase
from cce_lab.sweeps.recipe import make_recipe
from cce_lab.sweeps.tuning import Choices, Tuning, TuningStudy, best_validation
from helpers.sweeps import TRAIN, tiny_values

PLANTED = {"lr": [1e-7, 0.02, 1e-6], "epochs": [1, 2], "series": {"full": {"lr": [0.02, 1e-7]}}}
CHOSEN = {("full", None): {"lr": 0.02}, ("hash", 320): {"lr": 0.02}}
FAST = {
    "train": TRAIN | {"validations_per_epoch": 1, "threads": 1},
    "sweep": {"methods": ["full", "hash"], "caps": [320]},
    "series": {},
}


def tuning(data, out, tune=PLANTED, **changes):
    return Tuning(make_recipe("tiny", FAST | {"tune": tune} | changes), PreparedData.open(data), out)


def chosen(choices):
    return {(choice.series, choice.cap): choice.options for choice in choices.choices}


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """Tuning that nobody disturbed."""
    out = tmp_path_factory.mktemp("tuning")
    return out, tuning(data, out).run()


@pytest.mark.slow
def test_the_planted_learning_rate_is_found_and_all_trials_are_recorded(whole):
    out, choices = whole
    assert chosen(choices) == CHOSEN
    assert Choices.read(out) == choices
    found = next(choice for choice in choices.choices if choice.series == "hash")
    assert [(trial["epochs"], trial["options"]["lr"]) for trial in found.trials] == [
        *((1, 1e-7), (1, 0.02), (1, 1e-6)),
        *((2, 0.02), (2, 1e-6)),  # two of three go on, and the best is first
    ]
    assert found.score == min(trial["score"] for trial in found.trials if trial["epochs"] == 2)
    assert found.epochs == 2


@pytest.mark.slow
def test_test_rows_are_never_scored(whole):
    records = read_records(whole[0] / "tune" / "records.jsonl")
    assert len(records) == 5 + 4
    assert all(record.scores == {} and record.config["test"] is False for record in records)


@pytest.mark.slow
@pytest.mark.parametrize("step", [20, 100])  # in the first round, and in the second
def test_interrupted_and_resumed_it_chooses_the_same(whole, data, tmp_path, monkeypatch, step):
    train_step, seen = TrainPhase.train_step, [0]

    def interrupted(*args):
        seen[0] += 1
        if seen[0] == step:
            raise KeyboardInterrupt
        return train_step(*args)

    monkeypatch.setattr(TrainPhase, "train_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tuning(data, tmp_path).run()
    assert not (tmp_path / "tuned.json").exists()
    monkeypatch.undo()
    assert tuning(data, tmp_path).run() == whole[1]
    assert (tmp_path / "tuned.json").read_bytes() == (whole[0] / "tuned.json").read_bytes()


@pytest.mark.slow
def test_a_learning_rate_that_diverges_is_the_worst(data, tmp_path):
    train = FAST["train"] | {"optimizer": "sgd"}
    choices = tuning(
        data, tmp_path, {"lr": [1e25, 0.02], "epochs": [1]}, sweep={"methods": ["full"]}, train=train
    ).run()
    assert chosen(choices) == {("full", None): {"lr": 0.02}}
    assert choices.choices[0].trials[0]["score"] is None


def test_if_all_diverge_it_is_one_line():
    with pytest.raises(ValueError, match=r"all trials of 'cce' diverged: \[tune\] must have a lower lr, got 0, 1\."):
        study(2, (1,)).take(0, {})


@pytest.mark.slow
def test_a_trial_that_fails_otherwise_is_named_and_nothing_is_chosen(data, tmp_path):
    wrong = {"wrong": {"method": "cce-paper", "model_options": {"colour": 3}}}
    sweep = {"caps": [320]}
    with pytest.raises(ValueError, match=r"1 of 1 trials failed, see their error.txt: wrong-cap320-lr0.01-epochs1-see"):
        tuning(data, tmp_path, {"lr": [0.01], "epochs": [1]}, sweep=sweep, series=wrong).run()
    assert not (tmp_path / "tuned.json").exists()


def study(num_candidates, rungs, metric="bce", **options):
    candidates = [{"lr": float(index)} for index in range(num_candidates)]
    return TuningStudy("cce", 320, metric, rungs, candidates, **options)


def scored(study, *scores):
    """Records of the first round: a tuple of scores for each candidate, one for each seed."""
    found = {}
    for options, of_seeds in zip(study.candidates, scores, strict=True):
        for seed, score in zip(study.seeds, of_seeds, strict=True):
            name, curve = study.name(0, options, seed), [{"step": 1, study.metric: score}]
            found[name] = RunRecord("cce", seed, 1, 4, {}, 1.0, curve=curve)
    return found


def test_a_third_goes_on_and_at_least_two_until_the_last_round():
    numbers = [len(study(18, (1, 2, 4)).candidates_of(rung)) for rung in range(4)]
    assert numbers == [18, 6, 2, 1]
    assert [len(study(3, (1, 2)).candidates_of(rung)) for rung in range(3)] == [3, 2, 1]
    assert [len(study(1, (1, 2)).candidates_of(rung)) for rung in range(3)] == [1, 1, 1]


def test_the_mean_over_seeds_ranks_and_of_equals_the_first_wins():
    found = study(4, (1,), seeds=(0, 1))
    found.take(0, scored(found, (0.5, 0.5), (0.1, 0.8), (0.1, 0.8), (0.0, math.nan)))
    assert found.candidates == [{"lr": 1.0}]
    assert [trial["score"] for trial in found.trials] == [0.5, pytest.approx(0.45), pytest.approx(0.45), None]


def test_more_is_better_where_the_metric_says_so():
    found = study(2, (1,), "auc")
    found.take(0, scored(found, (0.7,), (0.8,)))
    assert found.candidates == [{"lr": 1.0}]


def test_the_best_validation_counts_and_not_the_last():
    curve = [{"step": 1, "bce": 0.6}, {"step": 2, "bce": 0.5}, {"step": 3, "bce": 0.7}, {"step": 4}]
    assert best_validation(RunRecord("cce", 0, 1, 4, {"bce": 0.1}, 1.0, curve=curve), "bce") == 0.5
    assert math.isnan(best_validation(RunRecord("cce", 0, 1, 4, {"bce": 0.1}, 1.0), "bce"))


def test_the_plan_has_all_rounds_and_the_budgets_that_were_asked_for(data, tmp_path):
    sweep = {"methods": ["full", "cce-paper", "hash"], "caps": [320, 640, 800], "seeds": [0]}
    grid = PLANTED | {"caps": [320, 800], "seeds": [0, 1]}
    series = {"small": {"method": "cce-paper", "caps": [640]}}
    runs = tuning(data, tmp_path, grid, sweep=sweep, series=series).planned().runs
    caps = {
        name: sorted({run.config.cap for run in runs if run.series.startswith(f"{name},")})
        for name in ("cce-paper", "small")
    }
    assert caps == {"cce-paper": [320, 800], "small": [640]}  # its middle one, as it has none of those
    assert len(runs) == 2 * (4 + 2 * (3 + 2) * 2 + (3 + 2))
    assert not list(tmp_path.iterdir())


def test_bad_input_is_rejected_before_anything_runs(data, tmp_path):
    recipe = make_recipe("tiny", tiny_values(tune={"lr": [0.1]}))
    with pytest.raises(ValueError, match=r"recipe must have \[tune\], which says what to try, got none"):
        Tuning(replace(recipe, tune=None), PreparedData.open(data), tmp_path)
    with pytest.raises(ValueError, match=r"only must name series of the recipe \(full, cce, pq\), got 'ccee'."):
        Tuning(recipe, PreparedData.open(data), tmp_path, only=["ccee"])
    with pytest.raises(ValueError, match="recipe must have a series that does not start from another, got none to tu"):
        Tuning(recipe, PreparedData.open(data), tmp_path, only=["pq"])
    prepared = PreparedData.open(data)
    del prepared.manifest["splits"]["validation"]
    with pytest.raises(ValueError, match=r"data must have validation rows to tune on, got train, test only\."):
        Tuning(recipe, prepared, tmp_path)
