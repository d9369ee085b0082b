"""One set of names for the command line, files and Python; unknown ones are rejected with the closest match."""

import pytest

from cce.training.config import TrainConfig
from cce.training.options import make_config, parse_pairs, read_toml, to_toml, upgrade_options


def test_a_file_holds_what_was_written(tmp_path):
    config = TrainConfig(
        data='folder with "quotes"',
        cap=800,
        lr=1e-3,
        early_stopping=False,
        model_options={"bottom": [64, 32], "name": "é"},
        method_options={"settings": {"start": "k-means++", "niter": 3}},
    )
    (tmp_path / "config.toml").write_text(to_toml(config), encoding="utf-8")
    assert make_config(read_toml(tmp_path / "config.toml")) == config


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("batchsize", "batch_size"), ("learning_schedule", "lr_schedule"), ("clusters_every", "cluster_every")],
)
def test_a_wrong_name_is_rejected_with_the_nearest_right_one(tmp_path, name, nearest):
    (tmp_path / "run.toml").write_text(f"{name} = 3\n")
    with pytest.raises(ValueError, match=f"an option that is not known, '{name}': did you mean '{nearest}'"):
        read_toml(tmp_path / "run.toml")


def test_a_name_unlike_any_is_rejected_with_all_of_them():
    with pytest.raises(ValueError, match="'zzzz': the options are data, model, "):
        make_config({"data": "d", "zzzz": 1})


def test_a_file_that_is_not_there_or_not_toml_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="config must name a file that is there, got"):
        read_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("cap = = 3")
    with pytest.raises(ValueError, match=r"bad.toml must be TOML"):
        read_toml(tmp_path / "bad.toml")


def test_data_must_be_given_and_whole_numbers_are_floats_too():
    with pytest.raises(ValueError, match="data must be given"):
        make_config({"cap": 3})
    assert make_config({"data": "d", "method": "full", "lr": 1}).lr == 1.0


def test_pairs_are_toml_or_words():
    assert parse_pairs("x", ["a=[1,2]", "b=0.5", "c=k-means++", "d=true", 'e="3"']) == {
        "a": [1, 2],
        "b": 0.5,
        "c": "k-means++",
        "d": True,
        "e": "3",
    }
    with pytest.raises(ValueError, match="model_options must have the form NAME=VALUE, got 'a'"):
        parse_pairs("model_options", ["a"])


def test_options_of_runs_from_before_have_the_names_of_today(tmp_path):
    old = {
        "schedule": "none",
        "cluster_at": [1.0],
        "method_options": {"settings": {"num_iterations": 3, "start": "random"}},
    }
    new = upgrade_options(old | {"lr": 0.1})
    assert new == {
        "cluster_schedule": "none",
        "cluster_at_epochs": [1.0],
        "method_options": {"settings": {"max_iter": 3, "init": "random"}},
        "lr": 0.1,
        "refits": 0,  # were not there
        "code_bits": 0,
    }
    assert upgrade_options({"weight_decay": 0.1})["network_weight_decay"] == 0.1
    assert upgrade_options({"method": "hash", "lr": 0.1}) == {"method": "hash", "lr": 0.1}
    assert upgrade_options({"weight_decay": 0.1, "network_weight_decay": 0.0})["network_weight_decay"] == 0.0
    (tmp_path / "config.toml").write_text('schedule = "none"\n')
    assert read_toml(tmp_path / "config.toml", upgrade=True) == {
        "cluster_schedule": "none",
        "refits": 0,
        "code_bits": 0,
    }
    with pytest.raises(ValueError, match="an option that is not known, 'schedule'"):
        read_toml(tmp_path / "config.toml")


def test_a_run_of_the_papers_preset_had_a_count_that_it_did_not_use():
    old = {"data": "d", "cap": 3, "preset": "paper", "learned_min_count": 5}
    assert make_config(upgrade_options(old)).learned_min_count is None
    assert upgrade_options(old | {"preset": "tuned"})["learned_min_count"] == 5
