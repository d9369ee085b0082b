"""A run that is right has no problems; damage of every kind is in test_bad_input.py."""

import pytest

from cce.cli import main
from cce.training import Trainer
from cce.training.checkpoint import read_checkpoint, write_checkpoint
from cce.training.verify import verify_run
from helpers.runs import tiny_config


@pytest.fixture
def run(data, tmp_path):
    """A run of 9 steps with checkpoints of steps 4 (a validation), 6 and 9 (both)."""
    Trainer(tiny_config(data, max_steps=9, checkpoint_every=6, keep_last=3), tmp_path / "run").run()
    return tmp_path / "run"


@pytest.mark.slow
def test_a_run_that_is_right_has_no_problems(run, capsys):
    found = verify_run(run)
    assert found.checked == {"checkpoints": 3, "lines of the log": 6}
    assert found.problems == []
    assert main(["verify", str(run)]) == 0
    assert capsys.readouterr().out == f"{run}: run is right (3 checkpoints, 6 lines of the log)\n"


@pytest.mark.slow
def test_weights_that_are_not_finite_and_wrong_names_are_problems(run, capsys):
    last = run / "checkpoints" / "step-0000000009"
    checkpoint = read_checkpoint(last)
    checkpoint.model["top.0.bias"][0] = float("nan")
    write_checkpoint(last.parent, 9, checkpoint.model, checkpoint.state)
    last.rename(last.with_name("step-0000000010"))
    problems = verify_run(run).problems
    assert f"{last.with_name('step-0000000010')} must be named after its step, {last.name}." in problems
    assert f"{last.with_name('step-0000000010')}: top.0.bias must be finite, got NaN or infinity." in problems
    assert main(["verify", str(run)]) == 2
    assert "more: --json lists them)" in capsys.readouterr().err


@pytest.mark.slow
def test_the_model_of_a_foreign_run_is_not_made(run):
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace('"dlrm"', '"nowhere.py:X"'))
    for path in (run / "checkpoints").iterdir():
        checkpoint = read_checkpoint(path)
        checkpoint.state["config"]["model"] = "nowhere.py:X"
        write_checkpoint(path.parent, checkpoint.step, checkpoint.model, checkpoint.state)
    assert verify_run(run).problems == []
    with pytest.raises(FileNotFoundError, match=r"must be the folder of a run, got no config\.toml there"):
        verify_run(run / "checkpoints")
