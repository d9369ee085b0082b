"""Options of a run, and the rules between them."""

import tomllib
from dataclasses import replace

import pytest

from cce.budget import DEFAULT_METHOD, PAPER_METHOD
from cce.embeddings import METHODS
from cce.training.config import PRESETS, TrainConfig, make_config, read_toml, to_toml

FULL = TrainConfig(data="d", method="full")


def test_a_run_without_options_has_adam_and_the_paper_s_preset_the_paper_s_protocol():
    assert (FULL.model, FULL.optimizer, FULL.lr, FULL.batch_size) == ("dlrm", "adam", 0.006, 2048)
    assert FULL.validations_per_epoch == 6
    assert FULL.early_stopping
    paper = TrainConfig(data="d", cap=3, preset="paper")
    assert (paper.model, paper.optimizer, paper.lr, paper.batch_size) == ("dlrm", "sgd", 0.1, 128)


@pytest.mark.parametrize("given", [{"optimizer": "adam"}, {"lr": 0.006}, {"batch_size": 2048}, {"lr": 0.0}])
def test_what_is_given_holds_with_the_paper_s_preset_though_it_is_our_default(given, tmp_path):
    config = make_config({"data": "d", "cap": 3, "preset": "paper"} | given)
    expected = {"optimizer": "sgd", "lr": 0.1, "batch_size": 128} | given
    assert {name: getattr(config, name) for name in expected} == expected
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert make_config(read_toml(tmp_path / "config.toml")) == config
    assert replace(config, epochs=3).lr == config.lr


def test_no_epochs_go_with_a_run_to_start_from_only():
    assert make_config({"data": "d", "cap": 3, "epochs": 0, "start_from": "run"}).epochs == 0
    with pytest.raises(ValueError, match="epochs must lie in"):
        make_config({"data": "d", "cap": 3, "epochs": 0})


def test_numbers_of_epochs_survive_a_file(tmp_path):
    config = TrainConfig(data="d", cap=3, cluster_at=[0.25, 1.5])
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert make_config(read_toml(tmp_path / "config.toml")).cluster_at == [0.25, 1.5]


def test_the_papers_preset_has_the_papers_method():
    assert [TrainConfig(data="x", cap=100, preset=preset).method for preset in PRESETS] == [
        DEFAULT_METHOD,
        PAPER_METHOD,
    ]
    assert {DEFAULT_METHOD, PAPER_METHOD} <= set(METHODS)
    assert TrainConfig(data="x", cap=100, preset="paper", method="hash").method == "hash"


def test_any_name_of_an_option_survives_a_file(tmp_path):
    options = {"type": 1, "a.b": 2, "": 3, "my column": 4, 'a"b': 5, "settings": {"a.b": 1}}
    config = TrainConfig(data="d", cap=3, model_options=options)
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert make_config(read_toml(tmp_path / "config.toml")).model_options == options


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"metrics": ["bce", "acu"]}, "metric 'acu' is not known: did you mean 'auc'?"),
        ({"metrics": []}, "metrics must be a list of names, got []."),
    ],
)
def test_metrics_that_do_not_fit_are_rejected(values, message):
    with pytest.raises((TypeError, ValueError), match="metric") as raised:
        make_config({"data": "d", "method": "full"} | values)
    assert message in str(raised.value)


@pytest.mark.parametrize("start_scale", ["auto", "uniform", "dlrm", "zero", 0.01, 2])
def test_a_start_is_a_word_or_a_number(start_scale):
    config = make_config({"data": "d", "method": "full", "start_scale": start_scale})
    assert config.start_scale == start_scale
    assert make_config(tomllib.loads(to_toml(config))).start_scale == start_scale
