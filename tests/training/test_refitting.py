"""Rounds of refits after the last epoch: what they leave, and that a run that was stopped in one ends with the same."""

import os
import signal
from itertools import pairwise

import pytest
import torch

from cce.embeddings import Finalizable
from cce.reclustering import Fold
from cce.run_folder import RunFolder
from cce.training import Trainer, refitting
from cce.training.building import count_ids
from cce.training.checkpoint import list_checkpoints, read_checkpoint
from cce.training.inspection import inspect_checkpoint
from helpers.runs import CCE, tiny_config

pytestmark = pytest.mark.slow
REFITS = {**CCE, "refits": 3, "epochs": 1, "refit_network": "always"}


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
    assert "\nrefits: BCE " in str(inspect_checkpoint(out))


def test_the_tables_are_those_of_refits(whole):
    """Ids of one row have no pointers; and nothing is clustered in the epochs."""
    trainer = Trainer.resume(whole[0])
    trainer.close()
    counts = count_ids(trainer.data)
    tables = [(name, table) for name, table in trainer.model.tables.tables.items() if table.method == "cce"]
    assert len(tables) == 2
    for name, table in tables:
        assert table.is_final
        assert table.pointers.store.num_ids == int((counts[name] >= 2).sum())
        assert not table(torch.arange(table.num_embeddings))[counts[name] < 2].any()
    assert not [line for line in RunFolder(whole[0]).read_log() if line["kind"] == "cluster"]


def network_of(model):
    return {name: value.clone() for name, value in model.state_dict().items() if name.startswith(("bottom", "top"))}


@pytest.mark.parametrize("refit_network", ["never", "always"])
def test_the_network_is_trained_between_rounds_on_its_own_rows_and_not_after_the_last(
    data, tmp_path, monkeypatch, refit_network
):
    networks, folds, train_network = [], [], refitting.train_network

    def watched_round(session, refit_tables=refitting.refit_tables):
        networks.append(network_of(session.model))
        return refit_tables(session)

    def watched_training(session, fold, seed):
        tables = {name: value.clone() for name, value in session.model.tables.state_dict().items()}
        folds.append(fold)
        train_network(session, fold, seed)
        after = session.model.tables.state_dict()
        changed = {name.split(".")[1] for name in tables if not torch.equal(tables[name], after[name])}
        assert changed.isdisjoint(session.refit.features)  # but the full table may change
        assert changed
        anchors = {id(table.anchor) for table in session.model.modules() if isinstance(table, Finalizable)}
        assert all(parameter.requires_grad for parameter in session.model.parameters() if id(parameter) not in anchors)

    monkeypatch.setattr("cce.training.table_events.refit_tables", watched_round)
    monkeypatch.setattr(refitting, "train_network", watched_training)
    trainer = Trainer(tiny_config(data, **REFITS | {"refit_network": refit_network}), tmp_path / "run")
    trainer.run()
    networks.append(network_of(trainer.session.model))
    assert folds == ([Fold(2, 3)] * 2 if refit_network == "always" else [])
    is_same = [all(torch.equal(a[n], b[n]) for n in a) for a, b in pairwise(networks)]
    assert len(networks[0]) == 8
    assert is_same == ([False, False, True] if refit_network == "always" else [True, True, True])


@pytest.mark.parametrize("stop_in", [0, 1])
def test_a_run_that_was_stopped_in_a_round_ends_with_the_same_bits(whole, data, tmp_path, monkeypatch, stop_in):
    refit_tables = refitting.refit_tables

    def refit_and_signal(session):
        if session.num_refits == stop_in:
            os.kill(os.getpid(), signal.SIGINT)
        return refit_tables(session)

    monkeypatch.setattr("cce.training.table_events.refit_tables", refit_and_signal)
    with pytest.raises(KeyboardInterrupt, match=f"saved after step {15 + stop_in}; resume with"):
        Trainer(tiny_config(data, **REFITS), tmp_path / "run").run()
    monkeypatch.undo()
    record = Trainer.resume(tmp_path / "run").run()
    assert record.curve == whole[1].curve
    assert model_bits(tmp_path / "run") == model_bits(whole[0])


def test_a_run_that_died_in_a_round_ends_with_the_same_bits(whole, data, tmp_path, monkeypatch):
    refit_tables = refitting.refit_tables

    def refit_and_die(session):
        found = refit_tables(session)
        if session.num_refits == 2:
            raise OSError("the machine went off")
        return found

    monkeypatch.setattr("cce.training.table_events.refit_tables", refit_and_die)
    with pytest.raises(OSError, match="went off"):
        Trainer(tiny_config(data, **REFITS), tmp_path / "run").run()
    monkeypatch.undo()
    assert Trainer.resume(tmp_path / "run").run().curve == whole[1].curve
    assert model_bits(tmp_path / "run") == model_bits(whole[0])


def test_tables_without_pointers_are_rejected(data, tmp_path):
    with pytest.raises(ValueError, match="refits must be left out where no table trains as int8 rows, got refits=1"):
        Trainer(tiny_config(data, method="hash", refits=1), tmp_path / "run")


def test_rows_lack_no_decay_when_they_are_refitted(data, tmp_path):
    """Training may end between two validations; what is lacking then must not be taken from refitted rows."""
    options = {"sparse": True, "optimizer": "rowwise_adagrad", "lr": 0.05, "weight_decay": 0.05}
    trainer = Trainer(tiny_config(data, **options), tmp_path / "run")
    pieces, num_rows = next(trainer.session.batches())
    trainer.train_step(pieces, num_rows)
    (optimizer,) = trainer.session.row_optimizers
    assert optimizer.caught_up()
    refitting.go_back_to_best(trainer.session, trainer.folder)
    assert not optimizer.caught_up()
    trainer.close()


@pytest.mark.parametrize(("given", "steps"), [({"refits": 2}, [6, 7, 8]), ({}, [6])])
def test_a_run_that_is_cut_short_is_finalized_and_refitted_if_asked(data, tmp_path, given, steps):
    record = Trainer(tiny_config(data, **CCE, max_steps=5, **given), tmp_path / "run").run()
    assert [scores["step"] for scores in record.curve] == steps


def test_a_refit_in_few_bytes_passes_more_often_and_finds_nearly_the_same(whole, data, tmp_path):
    _, record = whole
    few = Trainer(tiny_config(data, **REFITS, refit_nbytes=2_000), tmp_path / "run").run()
    assert few.training_nbytes < record.training_nbytes / 2
    assert abs(few.scores["bce"] - record.scores["bce"]) < 0.03
