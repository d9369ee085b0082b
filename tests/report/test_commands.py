"""The command of a run gives the run's configuration back."""

import argparse
import shlex
from dataclasses import asdict
from pathlib import Path

from cce.cli import train
from cce.report.commands import sweep_command, train_command
from cce.training.config import TrainConfig, make_config

CONFIG = TrainConfig(
    data="/data/my clicks",
    method="robe",
    method_options={"start": "k-means++", "sizes": [1, 2]},
    model_options={"bottom": [64, 32]},
    cap=8000,
    epochs=3,
    lr=0.05,
    early_stopping=False,
    sparse=True,
    seed=2,
)


def parsed(command):
    """The configuration that `cce train` makes of a command."""
    parser = argparse.ArgumentParser()
    train.add_verb(parser.add_subparsers())
    return make_config(train._given(parser.parse_args(shlex.split(command)[1:])))


def test_a_command_says_what_differs_and_nothing_else():
    assert train_command(asdict(CONFIG)) == (
        "cce train '/data/my clicks' --model-options 'bottom=[64,32]' --method robe --method-options "
        "start=k-means++ 'sizes=[1,2]' --cap 8000 --sparse --epochs 3 --lr 0.05 --no-early-stopping --seed 2"
    )


def test_a_command_is_the_run_again():
    assert parsed(train_command(asdict(CONFIG))) == CONFIG
    plain = TrainConfig(data=str(Path("/data")), cap=100)
    assert train_command(asdict(plain)) == "cce train /data --method cce --cap 100"
    assert parsed(train_command(asdict(plain))) == plain


def test_a_configuration_of_another_version_does_not_matter():
    assert train_command({"method": "full", "unheard_of": 1}) == "cce train DATA --method full"


def test_a_sweep():
    assert sweep_command("my recipe.toml") == "cce sweep 'my recipe.toml'"
