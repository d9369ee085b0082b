"""Runs of cce: int8 rows are trained, finalized, refitted; wherever a run was stopped, it ends with the same bits."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import cce
from cce.embeddings import Finalizable
from cce.run_folder import RunFolder
from cce.training import Trainer, phases
from cce.training.checkpoint import checkpoint_path, list_checkpoints, read_checkpoint
from cce.training.outcome import go_back_to_best
from cce.training.phases import FinalizePhase, TrainPhase
from cce.training.refit_phase import RefitPhase
from cce.training.session import int8_tables
from helpers.runs import CCE, NETWORK, tiny_config

pytestmark = pytest.mark.slow
OPTIONS = {**CCE, "refits": 2, "model_options": NETWORK, "epochs": 1}
LAST_STEP = 13  # of the epoch; finalize is step 14, refits are 15 and 16


def config(data, **changes):
    return tiny_config(data, **OPTIONS | changes)


def content(out):
    """All that must be the same: tensors, the state but for the clock, the log."""
    checkpoint = read_checkpoint(list_checkpoints(out / "checkpoints")[-1])
    tensors = {name: value.numpy().tobytes() for name, value in checkpoint.model.items()}
    optimizers = [bits(state["state"]) for state in checkpoint.state["optimizers"]]
    lines = [line for line in RunFolder(out).scan_log()[0] if line["kind"] not in ("memory", "config")]
    log = [{n: v for n, v in line.items() if n != "seconds"} for line in lines]
    others = {name: checkpoint.state[name] for name in ("loader", "stopping", "curve")}
    others["finalize"] = checkpoint.state["phases"]["finalize"]
    return checkpoint.step, tensors, optimizers, log, others


def bits(state):
    return {key: {name: value.numpy().tobytes() for name, value in own.items()} for key, own in state.items()}


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("finalizing") / "whole"
    return out, Trainer(config(data), out).run()


def test_the_phases_are_training_finalize_and_refits(whole):
    out, record = whole
    kinds = [line["kind"] for line in RunFolder(out).scan_log()[0]]
    assert kinds.count("finalize") == 1
    assert kinds[:2] == ["config", "unseen"]
    assert kinds.index("finalize") < kinds.index("refit")
    assert [scores["step"] for scores in record.curve_before_finalize] == [4, 9, LAST_STEP]
    assert [scores["step"] for scores in record.curve] == [14, 15, 16]
    tables = {table.name: table for table in record.tables if table.method == "cce"}
    assert len(tables) == 2
    assert all(table.codes_nbytes > table.pointer_nbytes > 0 for table in tables.values())


class TurnedOff(Exception):
    """What a test raises where a machine goes off: nothing is saved."""


def die_in_step(monkeypatch, step):
    train_step = TrainPhase.train_step

    def dying(self, *arguments):
        if self.session.step == step:
            raise TurnedOff
        train_step(self, *arguments)

    monkeypatch.setattr(TrainPhase, "train_step", dying)


def die_before(monkeypatch, module, name):
    def dying(*arguments, **options):
        raise TurnedOff

    monkeypatch.setattr(module, name, dying)


def die_after(monkeypatch, module, name, when=lambda phase: True):
    original = getattr(module, name)

    def dying(phase, *arguments):
        found = original(phase, *arguments)
        if when(phase):
            raise TurnedOff
        return found

    monkeypatch.setattr(module, name, dying)


def refits_of(wanted):
    return lambda phase: phase.num_rounds == wanted


DEATHS = {
    "before the first checkpoint": lambda patch: die_in_step(patch, 3),
    "while int8 rows train": lambda patch: die_in_step(patch, 7),
    "in the last step": lambda patch: die_in_step(patch, LAST_STEP - 1),
    "right before finalize": lambda patch: die_before(patch, FinalizePhase, "run"),
    "before rows are clustered": lambda patch: die_before(patch, phases, "finalize"),
    "after rows are clustered": lambda patch: die_after(patch, FinalizePhase, "finalize"),
    "before the first refit": lambda patch: die_before(patch, RefitPhase, "refit_tables"),
    "in the second refit": lambda patch: die_after(patch, RefitPhase, "refit_tables", refits_of(2)),
    "before the test": lambda patch: die_before(patch, Trainer, "_finish"),
}


@pytest.mark.parametrize("when", DEATHS)
def test_a_run_that_died_ends_with_the_same_bits(whole, data, tmp_path, monkeypatch, when):
    DEATHS[when](monkeypatch)
    trainer = Trainer(config(data), tmp_path / "run")
    with pytest.raises(TurnedOff):
        trainer.run()
    monkeypatch.undo()
    record = Trainer.resume(tmp_path / "run").run()
    assert content(tmp_path / "run") == content(whole[0])
    assert (record.curve, record.scores) == (whole[1].curve, whole[1].scores)
    assert record.curve_before_finalize == whole[1].curve_before_finalize
    assert record.tables == whole[1].tables


def test_a_run_that_died_in_each_phase_ends_with_the_same_bits(whole, data, tmp_path, monkeypatch):
    trainer = Trainer(config(data), tmp_path / "run")
    for when in list(DEATHS)[1:]:
        DEATHS[when](monkeypatch)
        with pytest.raises(TurnedOff):
            trainer.run()
        monkeypatch.undo()
        trainer = Trainer.resume(tmp_path / "run")
    assert trainer.run().curve == whole[1].curve
    assert content(tmp_path / "run") == content(whole[0])


@pytest.mark.parametrize(("phase", "name", "step"), [(FinalizePhase, "finalize", 14), (RefitPhase, "refit_tables", 15)])
def test_ctrl_c_waits_for_the_event_and_the_run_ends_with_the_same_bits(
    whole, data, tmp_path, monkeypatch, phase, name, step
):
    original = getattr(phase, name)

    def signalled(*given):
        os.kill(os.getpid(), signal.SIGINT)
        return original(*given)

    monkeypatch.setattr(phase, name, signalled)
    with pytest.raises(KeyboardInterrupt, match=f"saved after step {step}; resume with"):
        Trainer(config(data), tmp_path / "run").run()
    monkeypatch.undo()
    Trainer.resume(tmp_path / "run").run()
    assert content(tmp_path / "run") == content(whole[0])


@pytest.mark.parametrize("changes", [{}, {"lr": 0.1}])  # the second is at its best in the first epoch
def test_more_epochs_go_on_with_the_int8_rows_as_if_they_had_never_been_finalized(data, tmp_path, changes):
    expected = Trainer(config(data, epochs=3, **changes), tmp_path / "whole").run()
    Trainer(config(data, **changes), tmp_path / "run").run()
    record = Trainer.resume(tmp_path / "run", epochs=3).run()
    assert record.curve_before_finalize == expected.curve_before_finalize
    assert record.curve == expected.curve
    assert content(tmp_path / "run") == content(tmp_path / "whole")
    leading = [scores["bce"] for scores in expected.curve_before_finalize]
    assert (leading.index(min(leading)) < 3) == bool(changes)


def test_more_epochs_that_are_interrupted_are_not_mixed_with_what_was_finished_before(data, tmp_path, monkeypatch):
    """Checkpoints of the finished run have steps that the resumed one has not come to yet."""
    expected = Trainer(config(data, epochs=2), tmp_path / "whole").run()
    Trainer(config(data), tmp_path / "run").run()
    die_in_step(monkeypatch, LAST_STEP + 3)
    with pytest.raises(TurnedOff):
        Trainer.resume(tmp_path / "run", epochs=2).run()
    monkeypatch.undo()
    trainer = Trainer.resume(tmp_path / "run")
    assert trainer.session.step == 13
    assert trainer.session.has_int8_rows
    assert trainer.run().curve == expected.curve
    assert content(tmp_path / "run") == content(tmp_path / "whole")


def test_a_run_that_is_finished_stays_as_it_is(whole, data, tmp_path):
    before = content(whole[0])
    assert Trainer.resume(whole[0]).run().scores == whole[1].scores
    assert content(whole[0]) == before


def test_tables_are_finalized_from_the_rows_of_the_best_validation(data, tmp_path, monkeypatch):
    finalize, rows = FinalizePhase.finalize, []

    def watched(self):
        rows.append({name: value.clone() for name, value in self.session.model.state_dict().items()})
        return finalize(self)

    monkeypatch.setattr(FinalizePhase, "finalize", watched)
    trainer = Trainer(config(data, epochs=3, lr=0.1, refits=0), tmp_path / "run")
    curve = trainer.run().curve_before_finalize
    best = min(curve, key=lambda scores: scores["bce"])["step"]
    assert best < curve[-1]["step"]
    checkpoint = read_checkpoint(checkpoint_path(tmp_path / "run" / "checkpoints", best))
    assert rows[0].keys() == checkpoint.model.keys()
    for name, value in rows[0].items():
        assert torch.equal(value, checkpoint.model[name]), name
    tables = [table for table in trainer.model.modules() if isinstance(table, Finalizable)]
    assert len(tables) == 2
    assert all(table.is_final and not table.anchor.requires_grad for table in tables)


def test_a_trained_row_for_unseen_ids_stays_only_where_validation_prefers_it_to_zeros(data, tmp_path, capsys):
    changes = {"epochs": 2, "min_count": 5, "method_options": {"unseen": "trained"}, "refits": 0}
    trainer = Trainer(tiny_config(data, **CCE, **changes), tmp_path / "run", progress=True)
    trainer.training.run()
    go_back_to_best(trainer.session, trainer.folder)
    tables = int8_tables(trainer.session.model)
    without = {name: table.rows.find(torch.arange(table.num_embeddings)) == 0 for name, table in tables.items()}
    vectors = {name: table.to_dense()[without[name]][0] for name, table in tables.items()}
    before = trainer.session.score(trainer.session.model, "validation")["bce"]
    trainer.finalizing.finalize()
    kept = {name: bool(table.to_dense()[without[name]].any()) for name, table in tables.items()}
    assert kept == {"c0": True, "c1": False}
    assert "ids without a row read the trained one in c0, else zeros" in capsys.readouterr().err
    assert trainer.finalizing.sizes[-1]["loss"] < before  # that of int8 rows, as they were finalized
    assert vectors["c1"].any()
    trainer.close()


def test_killed_processes_end_with_the_same_bits(whole, data, tmp_path):
    """A real process, killed as soon as it has begun to finalize."""
    out, code = tmp_path / "run", "import sys; from helpers.kill_in_finalize import main; main(*sys.argv[1:])"
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", code, str(data), str(out)]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    Trainer.resume(out).run()
    assert content(out) == content(whole[0])


def test_hashed_ids_train_though_they_come_in_any_order(tmp_path):
    """`--hash-ids`: ids are hashes, so that frequent ones lie anywhere; labels follow the user alone."""
    rng = np.random.default_rng(0)
    users = rng.zipf(1.3, 12_000) % 400
    labels = rng.random(len(users)) < np.where(users % 2, 0.85, 0.15)
    lines = [f"{int(label)},user-{user},{rng.integers(9)}" for label, user in zip(labels, users, strict=True)]
    (tmp_path / "clicks.csv").write_text("\n".join(["click,user,item", *lines]) + "\n")
    words = {"label": "click", "categorical": ["user", "item"], "hash_ids": 12, "split": "random"}
    data = cce.prepare(tmp_path / "clicks.csv", tmp_path / "data", progress=False, **words)
    counts = data.count_ids("train", "user")
    assert counts[: len(counts) // 2].sum() > 0 < counts[len(counts) // 2 :].sum()
    record = Trainer(tiny_config(data.path, **CCE, epochs=3, refits=0, cap=None), tmp_path / "run").run()
    assert any(table.method == "cce" for table in record.tables)
    mean = labels.mean()
    constant = -(mean * np.log(mean) + (1 - mean) * np.log(1 - mean))
    assert record.scores["bce"] < constant - 0.15  # who knew the users would have 0.42
