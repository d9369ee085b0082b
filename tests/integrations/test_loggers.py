"""Loggers: what of a line is sent, and that each service gets it, where it is installed. Nothing leaves the machine."""

import json

import pytest

from cce.integrations import LOGGERS, numbers_of, open_logger
from cce.training import Trainer
from helpers.runs import tiny_config, tiny_data


def test_only_finite_numbers_are_sent_by_name():
    line = {"step": 3, "bce": 0.5, "auc": float("nan"), "name": "user", "count": 2}
    assert numbers_of("validation", line) == {"validation/bce": 0.5, "validation/count": 2.0}


def test_a_logger_that_is_not_known_or_not_installed_is_one_line(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="logger must be one of tensorboard, wandb, mlflow; got 'wandd'"):
        open_logger("wandd", tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "mlflow", None)
    with pytest.raises(ValueError, match=r"logger must be installed, got 'mlflow'.*\[mlflow\]"):
        open_logger("mlflow", tmp_path)


def test_every_logger_has_a_module_of_its_name():
    from importlib.util import find_spec

    assert all(find_spec(f"cce.integrations.{name}") for name in LOGGERS)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_resumed_run_goes_on_with_the_same_run_of_the_service(name, tmp_path, monkeypatch):
    pytest.importorskip(name)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    monkeypatch.chdir(tmp_path)
    data = tiny_data(tmp_path / "data")
    Trainer(tiny_config(data, logger=name, max_steps=5), tmp_path / "run").run()
    known = json.loads((tmp_path / "run" / f"{name}.json").read_text())
    Trainer.resume(tmp_path / "run", max_steps=8).run()
    assert json.loads((tmp_path / "run" / f"{name}.json").read_text()) == known
