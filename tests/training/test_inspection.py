"""Saved runs looked at and verified; damage of every kind is in test_bad_input.py."""

import pytest

from cce.cli import main
from cce.runs import load_run
from cce.training import Trainer
from cce.training.checkpoint import checkpoint_path, read_checkpoint, write_checkpoint
from cce.training.inspection import inspect_checkpoint, verify_run
from helpers.runs import tiny_config


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("inspected") / "run"
    return out, Trainer(tiny_config(data), out).run()


def best_step(record):
    return min(record.curve, key=lambda scores: scores["bce"])["step"]


@pytest.mark.slow
def test_a_run_is_looked_at_by_its_newest_checkpoint(run):
    found = inspect_checkpoint(run[0])
    assert found.step == 26
    assert found.best_step == best_step(run[1])
    assert found.curve == run[1].curve
    assert found.tables.total.num_params == run[1].num_params
    text = str(found)
    assert "method=cce" not in text.split("options:", maxsplit=1)[0]
    for word in ("tables.tables.c0", "validation BCE", "cap=320"):
        assert word in text
    assert found.to_dict()["tables"]["all_tables"]["num_params"] == run[1].num_params


MINE = """
from pathlib import Path
from cce.models import DLRM
(Path(__file__).parent / "was-run").touch()

class Mine(DLRM):
    pass
"""


@pytest.mark.slow
def test_the_code_of_a_saved_model_is_run_only_if_it_is_given_again(data, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    model, ran = f"{tmp_path / 'mine.py'}:Mine", tmp_path / "was-run"
    record = Trainer(tiny_config(data, model=model, max_steps=4), tmp_path / "run").run()
    open_it = {
        "inspect": lambda **how: inspect_checkpoint(tmp_path / "run", **how),
        "checkpoint": lambda **how: inspect_checkpoint(checkpoint_path(tmp_path / "run" / "checkpoints", 4), **how),
        "load": lambda **how: load_run(tmp_path / "run", **how),
        "resume": lambda **how: Trainer.resume(tmp_path / "run", **how).close(),
    }
    for name, opened in open_it.items():
        ran.unlink()
        with pytest.raises(PermissionError, match=rf"^model of .* must be trusted, .*, got '{model}': give the model"):
            opened()
        assert not ran.exists(), name
        opened(model=model)
        assert ran.exists(), name
    assert load_run(tmp_path / "run", model=model).evaluate(data).scores == record.scores
    ran.unlink()
    Trainer(tiny_config(data, start_from=str(tmp_path / "run"), max_steps=1), tmp_path / "from").run()
    assert not ran.exists()  # the new run names a model of its own


@pytest.fixture
def checked(data, tmp_path):
    """A run of 9 steps with checkpoints of validations after steps 3, 6 and of step 9."""
    Trainer(tiny_config(data, max_steps=9, validations_per_epoch=4), tmp_path / "run").run()
    return tmp_path / "run"


@pytest.mark.slow
def test_a_run_that_is_right_has_no_problems(checked, capsys):
    found, lines = verify_run(checked), len((checked / "metrics.jsonl").read_text().splitlines())
    assert lines > 5
    assert found.checked == {"checkpoints": 3, "lines of the log": lines}
    assert found.problems == []
    assert main(["verify", str(checked)]) == 0
    assert capsys.readouterr().out == f"{checked}: run is right (3 checkpoints, {lines} lines of the log)\n"


@pytest.mark.slow
def test_weights_that_are_not_finite_and_wrong_names_are_problems(checked, capsys):
    last = checked / "checkpoints" / "step-0000000009"
    checkpoint = read_checkpoint(last)
    checkpoint.model["top.0.bias"][0] = float("nan")
    write_checkpoint(last.parent, 9, checkpoint.model, checkpoint.state)
    last.rename(last.with_name("step-0000000010"))
    problems = verify_run(checked).problems
    assert f"{last.with_name('step-0000000010')} must be named after its step, {last.name}." in problems
    assert f"{last.with_name('step-0000000010')}: top.0.bias must be finite, got NaN or infinity." in problems
    assert main(["verify", str(checked)]) == 2
    assert "more: --json lists them)" in capsys.readouterr().err


@pytest.mark.slow
def test_the_model_of_a_foreign_run_is_not_made(checked):
    text = (checked / "config.toml").read_text()
    (checked / "config.toml").write_text(text.replace('"dlrm"', '"nowhere.py:X"'))
    for path in (checked / "checkpoints").iterdir():
        checkpoint = read_checkpoint(path)
        checkpoint.state["config"]["model"] = checkpoint.state["resolved"]["model"] = "nowhere.py:X"
        write_checkpoint(path.parent, checkpoint.step, checkpoint.model, checkpoint.state)
    assert verify_run(checked).problems == []
    with pytest.raises(FileNotFoundError, match=r"must be the folder of a run, got no config\.toml there"):
        verify_run(checked / "checkpoints")
