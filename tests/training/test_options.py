"""One set of names for the command line, files and Python; unknown ones are rejected with the closest match."""

import pytest

from cce.training.config import TrainConfig, make_config, parse_pairs, read_toml, to_toml


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
    [("batchsize", "batch_size"), ("learning_schedule", "lr_schedule"), ("clusters_at", "cluster_at")],
)
def test_a_wrong_name_is_rejected_with_the_nearest_right_one(tmp_path, name, nearest):
    (tmp_path / "run.toml").write_text(f"{name} = 3\n")
    with pytest.raises(ValueError, match=f"an option that is not known, '{name}': did you mean '{nearest}'"):
        read_toml(tmp_path / "run.toml")


def test_a_name_unlike_any_is_rejected_with_all_of_them():
    with pytest.raises(ValueError, match="'zzzz': there are data, shuffle, model, "):
        make_config({"data": "d", "zzzz": 1})


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
