"""Rounds of refits after the last epoch: what they leave, and that a run that was stopped in one ends with the same."""

import os
import signal

import pytest
import torch

from cce.reclustering import Refit
from cce.run_folder import RunFolder
from cce.training import Trainer, count_ids
from cce.training.checkpoint import checkpoint_path, list_checkpoints, read_checkpoint
from cce.training.monitoring import Progress
from cce.training.refit_phase import RefitPhase
from cce.training.session import Session
from helpers.runs import CCE, NETWORK, tiny_config, tiny_data

pytestmark = pytest.mark.slow
REFITS = {**CCE, "refits": 3, "epochs": 1, "model_options": NETWORK}


def model_bits(out):
    checkpoint = read_checkpoint(list_checkpoints(out / "checkpoints")[-1])
    return checkpoint.step, {name: value.numpy().tobytes() for name, value in checkpoint.model.items()}


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("refits") / "whole"
    return out, Trainer(tiny_config(data, **REFITS), out).run()


def test_rounds_come_after_the_epochs_and_are_validated(whole):
    out, record = whole
    assert [scores["step"] for scores in record.curve] == [14, 15, 16, 17]  # finalized, and refitted three times
    assert [scores["step"] for scores in record.curve_before_finalize] == [4, 9, 13]
    assert record.seconds_by_part["refit"] > 0
    lines = [line for line in RunFolder(out).scan_log()[0] if line["kind"] == "refit"]
    assert [line["step"] for line in lines] == [14, 14, 15, 15, 16, 16]
    assert len({line["table"] for line in lines}) == 2  # the third table is full


def test_the_tables_are_those_of_refits(whole):
    """Ids without rows have no pointers; and nothing is clustered in the epochs."""
    trainer = Trainer.resume(whole[0])
    trainer.close()
    tables = [(name, table) for name, table in trainer.model.tables.tables.items() if table.method == "cce"]
    assert len(tables) == 2
    for name, table in tables:
        counts = count_ids(trainer.data, name)
        assert table.is_final
        assert table.pointers.store.num_ids == int((counts >= 1).sum())
        assert not table(torch.arange(table.num_embeddings))[counts < 1].any()
    assert not [line for line in RunFolder(whole[0]).scan_log()[0] if line["kind"] == "cluster"]


def test_the_network_stays_as_it_is(data, tmp_path, monkeypatch):
    networks = []

    def watched(self, refit_tables=RefitPhase.refit_tables):
        found = refit_tables(self)
        model = self.session.model.state_dict()
        networks.append({name: value.clone() for name, value in model.items() if name.startswith(("bottom", "top"))})
        return found

    monkeypatch.setattr(RefitPhase, "refit_tables", watched)
    Trainer(tiny_config(data, **REFITS), tmp_path / "run").run()
    assert len(networks) == 3
    assert len(networks[0]) == 8
    assert all(torch.equal(each[name], networks[0][name]) for each in networks for name in networks[0])


@pytest.mark.parametrize("stop_in", [0, 1])
def test_a_run_that_was_stopped_in_a_round_ends_with_the_same_bits(whole, data, tmp_path, monkeypatch, stop_in):
    refit_tables = RefitPhase.refit_tables

    def refit_and_signal(self):
        if self.num_rounds == stop_in:
            os.kill(os.getpid(), signal.SIGINT)
        return refit_tables(self)

    monkeypatch.setattr(RefitPhase, "refit_tables", refit_and_signal)
    with pytest.raises(KeyboardInterrupt, match=f"saved after step {15 + stop_in}; resume with"):
        Trainer(tiny_config(data, **REFITS), tmp_path / "run").run()
    monkeypatch.undo()
    record = Trainer.resume(tmp_path / "run").run()
    assert record.curve == whole[1].curve
    assert model_bits(tmp_path / "run") == model_bits(whole[0])


def test_a_run_that_died_in_a_round_ends_with_the_same_bits(whole, data, tmp_path, monkeypatch):
    refit_tables = RefitPhase.refit_tables

    def refit_and_die(self):
        found = refit_tables(self)
        if self.num_rounds == 2:
            raise OSError("the machine went off")
        return found

    monkeypatch.setattr(RefitPhase, "refit_tables", refit_and_die)
    with pytest.raises(OSError, match="went off"):
        Trainer(tiny_config(data, **REFITS), tmp_path / "run").run()
    monkeypatch.undo()
    assert Trainer.resume(tmp_path / "run").run().curve == whole[1].curve
    assert model_bits(tmp_path / "run") == model_bits(whole[0])


def test_tables_without_pointers_are_rejected(data, tmp_path):
    with pytest.raises(ValueError, match="refits must be left out where no table trains as int8 rows, got refits=1"):
        Trainer(tiny_config(data, method="hash", refits=1), tmp_path / "run")


@pytest.mark.parametrize(("given", "steps"), [({"refits": 2}, [6, 7, 8]), ({}, [6])])
def test_a_run_that_is_cut_short_is_finalized_and_refitted_if_asked(data, tmp_path, given, steps):
    record = Trainer(tiny_config(data, **CCE, max_steps=5, **given), tmp_path / "run").run()
    assert [scores["step"] for scores in record.curve] == steps


def interrupt_round(monkeypatch, number):
    """Send Ctrl-C in a round, once it has read a batch."""
    update = Progress.update

    def update_and_signal(self, rows, **notes):
        update(self, rows, **notes)
        if self.is_refit == number:
            os.kill(os.getpid(), signal.SIGINT)

    def watched(self, refit_tables=RefitPhase.refit_tables):
        self.trainer.progress.is_refit = self.num_rounds + 1
        return refit_tables(self)

    monkeypatch.setattr(Progress, "is_refit", 0, raising=False)
    monkeypatch.setattr(Progress, "update", update_and_signal)
    monkeypatch.setattr(RefitPhase, "refit_tables", watched)
    monkeypatch.setattr("cce.training.refit_phase.BATCH_ROWS", 64)


def test_ctrl_c_ends_refits_that_are_shown_and_keeps_the_best(data, tmp_path, monkeypatch, capsys):
    interrupt_round(monkeypatch, 2)
    record = Trainer(tiny_config(data, **REFITS), tmp_path / "run", progress=True).run()
    assert [scores["step"] for scores in record.curve] == [14, 15]
    assert RunFolder(tmp_path / "run").is_finished
    said = capsys.readouterr().err
    assert "3 rounds of refits follow, as --refits says so: about" in said
    assert "refits ended after round 1, as was asked" in said
    best = min(record.curve, key=lambda scores: scores["bce"])["step"]
    assert RunFolder(tmp_path / "run").scan_log()[0][-1]["best_step"] == best
    step, bits = model_bits(tmp_path / "run")
    assert step == 15
    trainer = Trainer.resume(tmp_path / "run")  # nothing is left to do
    assert trainer.run().curve == record.curve
    assert model_bits(tmp_path / "run") == (step, bits)


def test_ctrl_c_without_validation_rows_keeps_the_last_whole_round(tmp_path, monkeypatch, capsys):
    data = tiny_data(tmp_path / "data")
    interrupt_round(monkeypatch, 2)
    monkeypatch.setattr(Session, "has_rows", lambda self, split: split != "validation")
    trainer = Trainer(tiny_config(data, **REFITS), tmp_path / "run", progress=True)
    trainer.run()
    assert "refits ended after round 1, as was asked" in capsys.readouterr().err
    last = read_checkpoint(checkpoint_path(tmp_path / "run" / "checkpoints", 15)).model
    assert all(torch.equal(trainer.model.state_dict()[name], value) for name, value in last.items())


AUTO = REFITS | {"refits": "auto", "epochs": 3}


def watch_rounds(monkeypatch, scores, *, train=9.0):
    """Let rounds have these validation scores; training took `train` seconds, and each round 1. What rounds were on."""
    validate, seconds, round_, on_parts = Trainer.validate, RefitPhase._seconds, Refit.round, []

    def timed(self, part):
        return {"train": train, "refit": float(self.num_rounds)}[part] if self.num_rounds else seconds(self, part)

    def scored(self):
        validate(self)
        if number := self.refitting.num_rounds:
            self.session.curve[-1]["bce"] = scores[number - 1]

    def watched(self, **options):
        on_parts.append(options["on_parts"])
        return round_(self, **options)

    monkeypatch.setattr("cce.training.refit_phase.LEAST_SECONDS", 0)
    monkeypatch.setattr("cce.training.refit_phase.PASS_EPOCHS", 2.0)  # a trial takes less than what was expected
    monkeypatch.setattr(RefitPhase, "_seconds", timed)
    monkeypatch.setattr(Trainer, "validate", scored)
    monkeypatch.setattr(Refit, "round", watched)
    return on_parts


def test_a_trial_that_gains_is_followed_by_rounds_on_parts_and_one_on_all_rows(data, tmp_path, monkeypatch, capsys):
    on_parts = watch_rounds(monkeypatch, [0.03, 0.8, 0.8, 0.01])
    record = Trainer(tiny_config(data, **AUTO), tmp_path / "run", progress=True).run()
    assert [scores["step"] for scores in record.curve] == [40, 41, 42, 43, 44]
    assert on_parts == [False, True, True, False]
    said = capsys.readouterr().err
    assert "up to 4 rounds of refits follow, as at most 4 tables have pointers: about " in said
    assert "no more refits: all rounds are done" in said
    assert ", the best by validation" in said
    assert Trainer.resume(tmp_path / "run").run().curve == record.curve  # nothing is left to do


def test_a_trial_that_gains_too_little_is_alone(data, tmp_path, monkeypatch, capsys):
    watch_rounds(monkeypatch, [9.0])
    record = Trainer(tiny_config(data, **AUTO), tmp_path / "run", progress=True).run()
    assert [scores["step"] for scores in record.curve] == [40, 41]
    assert "no more refits: the first round gained too little" in capsys.readouterr().err


@pytest.mark.parametrize(("train", "expected"), [(2.5, [False]), (3.5, [False, True, False])])
def test_rounds_that_would_take_longer_than_training_are_not_begun(
    data, tmp_path, monkeypatch, capsys, train, expected
):
    on_parts = watch_rounds(monkeypatch, [0.03, 0.02, 0.01], train=train)
    Trainer(tiny_config(data, **AUTO), tmp_path / "run", progress=True).run()
    assert on_parts == expected  # a round on parts never comes last
    assert "no more refits: a round takes about 1.0 s, and all of them may take" in capsys.readouterr().err


def test_no_round_is_begun_that_would_take_longer_than_training(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("cce.training.refit_phase.LEAST_SECONDS", 0)
    monkeypatch.setattr("cce.training.refit_phase.PASS_EPOCHS", 100.0)
    record = Trainer(tiny_config(data, **AUTO), tmp_path / "none", progress=True).run()
    assert [scores["step"] for scores in record.curve] == [40]
    assert "no refits: a round takes about " in capsys.readouterr().err


def test_a_few_seconds_of_rounds_may_follow_however_short_training_was(data, tmp_path, monkeypatch):
    on_parts = watch_rounds(monkeypatch, [0.03, 0.8, 0.8, 0.01], train=1e-9)
    monkeypatch.setattr("cce.training.refit_phase.LEAST_SECONDS", 20)
    Trainer(tiny_config(data, **AUTO), tmp_path / "run").run()
    assert on_parts == [False, True, True, False]


def test_so_many_rounds_as_were_asked_for_whatever_they_take(data, tmp_path, monkeypatch):
    watch_rounds(monkeypatch, [9.0, 9.0], train=1e-9)
    record = Trainer(tiny_config(data, **REFITS | {"refits": 2}), tmp_path / "run").run()
    assert len(record.curve) == 3
