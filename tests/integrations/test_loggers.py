"""Loggers: what of a line is sent, and where: TensorBoard, or what a plug-in registers."""

import pytest

from cce.integrations import LOGGERS, finite_values, open_logger, register_logger
from cce.training import Trainer
from helpers.runs import tiny_config, tiny_data


class Noted:
    """A logger that remembers what it was sent."""

    def __init__(self, step):
        self.start, self.steps, self.names, self.is_closed = step, [], set(), False

    def log(self, step, values):
        self.steps.append(step)
        self.names |= set(values)

    def close(self):
        self.is_closed = True


def test_only_finite_numbers_are_sent_by_name():
    line = {"step": 3, "bce": 0.5, "auc": float("nan"), "name": "user", "count": 2}
    assert finite_values("validation", line) == {"validation/bce": 0.5, "validation/count": 2.0}


def test_a_logger_that_is_not_known_or_not_installed_is_one_line(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="logger must be one of tensorboard; got 'tensorbord'"):
        open_logger("tensorbord", tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match=r"logger must be installed, got 'tensorboard'.*\[tensorboard\]"):
        open_logger("tensorboard", tmp_path)
    with pytest.raises(ValueError, match="name of a logger must be new, got 'tensorboard'"):
        register_logger("tensorboard", lambda folder, step, config: None)


def test_a_registered_logger_gets_the_log_and_a_resumed_run_goes_on_with_it(tmp_path):
    made = []

    def make(folder, step, config):
        assert (folder, config["max_steps"]) == (tmp_path / "run", 5 if not made else 8)
        made.append(Noted(step))
        return made[-1]

    register_logger("noted", make)
    try:
        Trainer(tiny_config(tiny_data(tmp_path / "data"), logger="noted", max_steps=5), tmp_path / "run").run()
        Trainer.resume(tmp_path / "run", max_steps=8).run()
    finally:
        del LOGGERS["noted"]
    first, second = made
    assert first.start == 0
    assert second.start >= 5
    assert min(second.steps) >= second.start
    assert "test/bce" in first.names & second.names
    assert first.is_closed
    assert second.is_closed
