"""Saved runs, looked at and scored."""

import pytest

from cce.training import Trainer
from cce.training.checkpoint import checkpoint_path
from cce.training.inspection import evaluate_checkpoint, inspect_checkpoint
from helpers.runs import tiny_config, tiny_data


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
    assert set(found.health) == {"tables.tables.c0", "tables.tables.c1"}
    assert found.tables.total.num_params == run[1].num_params
    text = str(found)
    assert "method=cce" not in text.split("options:", maxsplit=1)[0]
    for word in ("tables.tables.c0", "H1", "verdict", "validation BCE", "cap=320"):
        assert word in text
    assert found.to_dict()["tables"]["all_tables"]["num_params"] == run[1].num_params


def test_evaluation_gives_the_scores_of_the_record(run, data):
    found = evaluate_checkpoint(run[0], data)
    assert found.path == checkpoint_path(run[0] / "checkpoints", best_step(run[1]))
    assert found.num_rows == 100
    assert found.scores == run[1].scores


MINE = """
from pathlib import Path
from cce.models import DLRM
(Path(__file__).parent / "was-run").touch()

class Mine(DLRM):
    pass
"""


@pytest.mark.slow
def test_the_code_of_a_saved_model_is_run_only_if_it_is_trusted_or_given_again(data, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    model, ran = f"{tmp_path / 'mine.py'}:Mine", tmp_path / "was-run"
    record = Trainer(tiny_config(data, model=model, max_steps=4), tmp_path / "run").run()
    open_it = {
        "inspect": lambda **how: inspect_checkpoint(tmp_path / "run", **how),
        "checkpoint": lambda **how: inspect_checkpoint(checkpoint_path(tmp_path / "run" / "checkpoints", 4), **how),
        "evaluate": lambda **how: evaluate_checkpoint(tmp_path / "run", data, **how),
        "resume": lambda **how: Trainer.resume(tmp_path / "run", **how).close(),
    }
    for name, opened in open_it.items():
        ran.unlink()
        with pytest.raises(PermissionError, match=rf"^model of .* must be trusted, .*, got '{model}': give the model"):
            opened()
        assert not ran.exists(), name
        opened(model=model)
        assert ran.exists(), name
        ran.unlink()
        opened(trust_model=True)
        assert ran.exists(), name
    assert evaluate_checkpoint(tmp_path / "run", data, trust_model=True).scores == record.scores
    ran.unlink()
    Trainer(tiny_config(data, start_from=str(tmp_path / "run"), max_steps=1), tmp_path / "from").run()
    assert not ran.exists()  # the new run names a model of its own


def test_what_does_not_fit_is_rejected(run, data, tmp_path):
    with pytest.raises(FileNotFoundError, match="must be a run or a checkpoint, got no whole checkpoint there"):
        inspect_checkpoint(tmp_path)
    other = tiny_data(tmp_path / "other", vocabulary_sizes=(50, 60, 30))
    with pytest.raises(ValueError, match="data must have the columns and ids that the model was trained on"):
        evaluate_checkpoint(run[0], other)
    with pytest.raises(ValueError, match="split must be one of train, validation, test; got 'tests'"):
        evaluate_checkpoint(run[0], data, split="tests")
