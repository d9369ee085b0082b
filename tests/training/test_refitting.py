"""Rounds of refits after the last epoch: what they leave, and that a run that was stopped in one ends with the same."""

import os
import signal
from itertools import pairwise

import pytest
import torch

from cce.embeddings import Finalizable
from cce.reclustering import Fold
from cce.run_folder import RunFolder
from cce.training import Trainer, count_ids
from cce.training.checkpoint import checkpoint_path, list_checkpoints, read_checkpoint
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
    lines = [line for line in RunFolder(out).read_log() if line["kind"] == "refit"]
    assert [line["step"] for line in lines] == [14, 14, 15, 15, 16, 16]
    assert len({line["table"] for line in lines}) == 2  # the third table is full


def test_the_tables_are_those_of_refits(whole):
    """Ids without rows have no pointers; and nothing is clustered in the epochs."""
    trainer = Trainer.resume(whole[0])
    trainer.close()
    counts = count_ids(trainer.data)
    tables = [(name, table) for name, table in trainer.model.tables.tables.items() if table.method == "cce"]
    assert len(tables) == 2
    for name, table in tables:
        assert table.is_final
        assert table.pointers.store.num_ids == int((counts[name] >= 1).sum())
        assert not table(torch.arange(table.num_embeddings))[counts[name] < 1].any()
    assert not [line for line in RunFolder(whole[0]).read_log() if line["kind"] == "cluster"]


def network_of(model):
    return {name: value.clone() for name, value in model.state_dict().items() if name.startswith(("bottom", "top"))}


@pytest.mark.parametrize("has_network", [False, True])
def test_the_network_is_trained_between_rounds_on_its_own_rows_and_not_after_the_last(
    data, tmp_path, monkeypatch, has_network
):
    networks, folds, train_network = [], [], RefitPhase.train_network

    def watched_round(self, turn, refit_tables=RefitPhase.refit_tables):
        networks.append(network_of(self.session.model))
        return refit_tables(self, turn)

    def watched_training(self, fold, seed):
        session = self.session
        tables = {name: value.clone() for name, value in session.model.tables.state_dict().items()}
        folds.append(fold)
        train_network(self, fold, seed)
        after = session.model.tables.state_dict()
        changed = {name.split(".")[1] for name in tables if not torch.equal(tables[name], after[name])}
        assert changed.isdisjoint(self.refit.features)  # but the full table may change
        assert changed
        anchors = {id(table.anchor) for table in session.model.modules() if isinstance(table, Finalizable)}
        assert all(parameter.requires_grad for parameter in session.model.parameters() if id(parameter) not in anchors)

    monkeypatch.setattr(RefitPhase, "refit_tables", watched_round)
    monkeypatch.setattr(RefitPhase, "train_network", watched_training)
    size = {} if has_network else {"model_options": {"bottom": [8], "top": [8]}}
    trainer = Trainer(tiny_config(data, **REFITS | size), tmp_path / "run")
    trainer.run()
    networks.append(network_of(trainer.session.model))
    assert folds == ([Fold(2, 3)] * 2 if has_network else [])
    is_same = [all(torch.equal(a[n], b[n]) for n in a) for a, b in pairwise(networks)]
    assert len(networks[0]) == 8
    assert is_same == ([False, False, True] if has_network else [True, True, True])


@pytest.mark.parametrize("stop_in", [0, 1])
def test_a_run_that_was_stopped_in_a_round_ends_with_the_same_bits(whole, data, tmp_path, monkeypatch, stop_in):
    refit_tables = RefitPhase.refit_tables

    def refit_and_signal(self, turn):
        if self.num_rounds == stop_in:
            os.kill(os.getpid(), signal.SIGINT)
        return refit_tables(self, turn)

    monkeypatch.setattr(RefitPhase, "refit_tables", refit_and_signal)
    with pytest.raises(KeyboardInterrupt, match=f"saved after step {15 + stop_in}; resume with"):
        Trainer(tiny_config(data, **REFITS), tmp_path / "run").run()
    monkeypatch.undo()
    record = Trainer.resume(tmp_path / "run").run()
    assert record.curve == whole[1].curve
    assert model_bits(tmp_path / "run") == model_bits(whole[0])


def test_a_run_that_died_in_a_round_ends_with_the_same_bits(whole, data, tmp_path, monkeypatch):
    refit_tables = RefitPhase.refit_tables

    def refit_and_die(self, turn):
        found = refit_tables(self, turn)
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


def test_ctrl_c_ends_refits_that_are_shown_and_keeps_the_best(data, tmp_path, monkeypatch, capsys):
    """In the second round, whose first group of tables has already changed."""
    saw_rows = RefitPhase.saw_rows

    def saw_and_signalled(self, number):
        if self.num_rounds == 1 and self._rows_read > 200:
            os.kill(os.getpid(), signal.SIGINT)
        saw_rows(self, number)

    monkeypatch.setattr(RefitPhase, "saw_rows", saw_and_signalled)
    record = Trainer(tiny_config(data, **REFITS), tmp_path / "run", progress=True).run()
    assert [scores["step"] for scores in record.curve] == [14, 15]
    assert RunFolder(tmp_path / "run").is_finished
    said = capsys.readouterr().err
    assert "3 rounds of refits follow, as --refits says so: about" in said
    assert "refits ended after round 1, as was asked" in said
    best = min(record.curve, key=lambda scores: scores["bce"])["step"]
    assert RunFolder(tmp_path / "run").read_log()[-1]["best_step"] == best
    step, bits = model_bits(tmp_path / "run")
    assert step == 15
    trainer = Trainer.resume(tmp_path / "run")  # nothing is left to do
    assert trainer.run().curve == record.curve
    assert model_bits(tmp_path / "run") == (step, bits)


def test_ctrl_c_without_validation_rows_keeps_the_tables_before_refits(tmp_path, monkeypatch, capsys):
    """A round on a part of the rows is not what to end with."""
    data, saw_rows = tiny_data(tmp_path / "data"), RefitPhase.saw_rows

    def saw_and_signalled(self, number):
        if self.num_rounds == 1:
            os.kill(os.getpid(), signal.SIGINT)
        saw_rows(self, number)

    monkeypatch.setattr(RefitPhase, "saw_rows", saw_and_signalled)
    monkeypatch.setattr(Session, "has_rows", lambda self, split: split != "validation")
    trainer = Trainer(tiny_config(data, **REFITS), tmp_path / "run", progress=True)
    trainer.run()
    assert "refits ended after round 1, as was asked" in capsys.readouterr().err
    start = read_checkpoint(checkpoint_path(tmp_path / "run" / "checkpoints", 14)).model
    assert all(torch.equal(trainer.model.state_dict()[name], value) for name, value in start.items())


AUTO = REFITS | {"refits": "auto", "epochs": 3}


def watch_rounds(monkeypatch, *, trial_score, train=5.0):
    """A list of what each round is, as they come. Training took `train` seconds, and all refits so far 1.

    trial_score: the validation score that the trial is said to have.
    """
    turns, refit_tables, end_event, validate = [], RefitPhase.refit_tables, Trainer.end_event, Trainer.validate

    def watched(self, turn):
        turns.append(("all" if turn.use_all_rows else "part") + " from the start" * turn.from_start)
        if turn.from_start and self.num_rounds:
            saved = read_checkpoint(checkpoint_path(self.trainer.folder.checkpoints, self.start_step)).model
            now = self.session.model.state_dict()
            assert all(torch.equal(now[name], value) for name, value in saved.items())
            assert not self.refit.priors
        return refit_tables(self, turn)

    def timed(self, what):
        self.session.stopwatch.seconds |= {"train": train, "refit": 1.0}
        end_event(self, what)

    def scored(self):
        validate(self)
        if trial_score is not None and self.refitting.num_rounds == 1:
            self.session.curve[-1]["bce"] = trial_score

    monkeypatch.setattr("cce.training.refit_phase.ROUND_EPOCHS", 0.1)
    monkeypatch.setattr(RefitPhase, "refit_tables", watched)
    monkeypatch.setattr(Trainer, "end_event", timed)
    monkeypatch.setattr(Trainer, "validate", scored)
    return turns


def test_refits_that_nobody_asked_for_begin_with_a_trial_and_go_on_to_a_round_on_all_rows(
    data, tmp_path, monkeypatch, capsys
):
    turns = watch_rounds(monkeypatch, trial_score=0.01)
    record = Trainer(tiny_config(data, **AUTO), tmp_path / "run", progress=True).run()
    assert turns == ["all", "part from the start", "part", "part", "all"]
    assert [scores["step"] for scores in record.curve] == [40, 41, 42, 43, 44, 45]
    said = capsys.readouterr().err
    assert "a trial round of refits follows, as at most 4 tables have pointers: about " in said
    # one on all rows, three on a third of them, and three times a third of an epoch for the network
    assert "4 rounds of refits follow, as at most 4 tables have pointers: about 3.7 s." in said
    assert "no more refits: all rounds are done" in said


def test_a_trial_that_gains_nothing_is_the_only_round(data, tmp_path, monkeypatch, capsys):
    turns = watch_rounds(monkeypatch, trial_score=9.0)
    record = Trainer(tiny_config(data, **AUTO), tmp_path / "run", progress=True).run()
    assert turns == ["all"]
    assert [scores["step"] for scores in record.curve] == [40, 41]
    assert "no more refits: the trial round did not improve the score" in capsys.readouterr().err


def test_rounds_that_would_take_longer_than_training_are_not_begun(data, tmp_path, monkeypatch, capsys):
    """So that no run ends with a round on a part of the rows."""
    turns = watch_rounds(monkeypatch, trial_score=0.01, train=4.0)  # 3.3 would follow the first, of 1
    record = Trainer(tiny_config(data, **AUTO), tmp_path / "run", progress=True).run()
    assert turns == ["all"]
    assert len(record.curve) == 2
    assert "no more refits: they would take about " in capsys.readouterr().err
    assert Trainer.resume(tmp_path / "run").run().curve == record.curve  # nothing is left to do
    monkeypatch.setattr("cce.training.refit_phase.ROUND_EPOCHS", 100.0)
    record = Trainer(tiny_config(data, **AUTO), tmp_path / "none", progress=True).run()
    assert [scores["step"] for scores in record.curve] == [40]
    assert "no refits: they would take about " in capsys.readouterr().err


@pytest.mark.parametrize("asked", [1, 2])
def test_so_many_rounds_as_were_asked_for_whatever_they_take_and_the_last_on_all_rows(
    data, tmp_path, monkeypatch, asked
):
    turns = watch_rounds(monkeypatch, trial_score=9.0, train=1e-9)
    Trainer(tiny_config(data, **REFITS | {"refits": asked}), tmp_path / "run").run()
    assert turns == [["all from the start"], ["part from the start", "all"]][asked - 1]


@pytest.mark.parametrize("stop_in", [1, 3])
def test_a_stopped_run_goes_on_with_the_rounds_that_are_left(data, tmp_path, monkeypatch, stop_in):
    turns = watch_rounds(monkeypatch, trial_score=0.01)
    whole = Trainer(tiny_config(data, **AUTO), tmp_path / "whole").run()
    refit_tables = RefitPhase.refit_tables

    def refit_and_signal(self, turn):
        if self.num_rounds == stop_in:
            os.kill(os.getpid(), signal.SIGINT)
        return refit_tables(self, turn)

    with monkeypatch.context() as patch:
        patch.setattr(RefitPhase, "refit_tables", refit_and_signal)
        with pytest.raises(KeyboardInterrupt, match="resume with"):
            Trainer(tiny_config(data, **AUTO), tmp_path / "run").run()
    assert Trainer.resume(tmp_path / "run").run().curve == whole.curve
    assert turns[:5] == turns[5:]
    assert model_bits(tmp_path / "run") == model_bits(tmp_path / "whole")
