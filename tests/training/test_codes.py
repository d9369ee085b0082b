"""Runs whose tables train as codes: what they become, what they held, and how a run that was stopped ends."""

import os
import signal
from dataclasses import replace

import pytest
import torch

import cce
from cce.cli import main
from cce.run_folder import RunFolder
from cce.runs import load_run
from cce.training import Trainer, plan_run
from cce.training.building import count_ids, with_defaults
from cce.training.checkpoint import list_checkpoints, read_checkpoint
from cce.training.codes import fit_to_codes, paths_of
from helpers import runs
from helpers.runs import tiny_config

CODES = runs.CODES | {"refits": 0, "epochs": 1}


def last_model(out):
    checkpoint = read_checkpoint(list_checkpoints(out / "checkpoints")[-1])
    return checkpoint.step, {name: value.numpy().tobytes() for name, value in checkpoint.model.items()}


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("codes") / "whole"
    trainer = Trainer(tiny_config(data, **CODES), out)
    methods = [table.method for table in trainer.model.tables.tables.values()]
    return out, trainer.run(), trainer, methods


def test_tables_that_learn_pointers_train_as_codes_and_others_as_they_are(whole):
    assert whole[3] == ["quantized", "quantized", "full"]


def test_after_the_last_epoch_they_are_the_tables_that_were_asked_for(whole, data):
    out, record, trainer, _ = whole
    config = with_defaults(tiny_config(data, **CODES), trainer.data)
    plan = plan_run(config, trainer.data.schema.vocabulary_sizes, count_ids(trainer.data))
    assert [(t.method, t.num_params, t.nbytes) for t in record.tables] == [
        (t.method, t.num_params, t.nbytes) for t in plan.tables.tables
    ]
    assert [table.method for table in record.tables] == ["cce", "cce", "full"]
    (line,) = [line for line in RunFolder(out).read_log() if line["kind"] == "codes"]
    assert line["tables"] == ["c0", "c1"]


def test_validations_of_codes_are_in_the_log_and_not_compared_with_those_of_pointers(whole):
    out, record, trainer, _ = whole
    assert [scores["step"] for scores in record.curve] == [14]
    assert [scores["step"] for scores in record.curve_before_finalize] == [4, 9, 13]
    assert record.whole_curve[-1]["epoch"] == 1  # of one: no epoch follows the last
    assert [line["step"] for line in RunFolder(out).read_log() if line["kind"] == "validation"] == [4, 9, 13, 14]
    assert trainer.session.stopping.best_step == 14


def test_what_is_saved_is_the_model_that_was_scored(whole, data):
    out, record, _, _ = whole
    assert load_run(out).evaluate(data).scores["bce"] == pytest.approx(record.scores["bce"], rel=1e-6)


def test_the_ledger_counts_codes_their_state_and_one_clustering_at_a_time(whole):
    record = whole[1]
    for table in record.tables[:2]:
        ids = table.num_embeddings
        assert 0 < table.codes_nbytes <= (ids + 1) * 8 + 12  # one byte a value, a scale and a hash function
        assert table.optimizer_nbytes > 0
        assert table.training_nbytes >= table.nbytes + table.codes_nbytes + table.optimizer_nbytes
    assert [table.clustering_nbytes > 0 for table in record.tables].count(True) == 1
    assert record.tables[2].codes_nbytes == 0
    assert record.training_nbytes == sum(table.training_nbytes for table in record.tables)


def test_ids_without_pointers_share_a_row_of_codes_as_they_share_a_vector_later(data, tmp_path):
    trainer = Trainer(tiny_config(data, **CODES, learned_min_count=5), tmp_path / "run")
    trainer.close()
    for name in ("c0", "c1"):
        table, num_learned = trainer.model.tables.tables[name], trainer.session.config.num_learned[name]
        assert (table.num_learned, table.num_shared) == (num_learned, 1)
        tail = torch.arange(num_learned, table.num_embeddings)
        assert len(tail) > 1
        assert len(table.to_dense(tail).unique(dim=0)) == 1


def test_pointers_are_near_to_the_codes_where_ids_occur_often():
    sizes, g = {"a": 400}, torch.Generator().manual_seed(0)
    options = {"cce": {"num_columns": 4, "num_learned": 300, "share_tail": True}}
    tables, final = (
        cce.EmbeddingCollection(sizes, 8, method="cce", cap=20 * 8, options=options, seed=seed) for seed in (0, 1)
    )
    codes = cce.QuantizedEmbedding(400, 8, num_learned=300, num_shared=1, generator=g)
    tables.tables["a"] = codes
    counts = 1 + 4000 // torch.arange(1, 401)
    before = codes.to_dense()
    assert fit_to_codes(tables, final, {"a": counts}, seed=0) == ["a"]
    after = tables.tables["a"].to_dense()
    error = (after - before).square().sum(1)
    assert tables.tables["a"] is final.tables["a"]
    assert error[:30].mean() < 0.5 * error[100:300].mean()
    assert tables(torch.arange(400).unsqueeze(1)).squeeze(1).equal(after)  # the collection knows the new table


@pytest.mark.slow
@pytest.mark.parametrize("stop_at", [6, 12])
def test_a_run_that_was_stopped_ends_with_the_same_bits(whole, data, tmp_path, stop_at):
    trainer = Trainer(tiny_config(data, **CODES), tmp_path / "run")
    after_step = trainer._after_step

    def stop(num_rows):
        after_step(num_rows)
        if trainer.session.step == stop_at:
            os.kill(os.getpid(), signal.SIGINT)

    trainer._after_step = stop
    with pytest.raises(KeyboardInterrupt, match="resume with"):
        trainer.run()
    record = Trainer.resume(tmp_path / "run").run()
    assert record.curve == whole[1].curve
    assert last_model(tmp_path / "run") == last_model(whole[0])
    assert [t.training_nbytes for t in record.tables] == [t.training_nbytes for t in whole[1].tables]


@pytest.mark.slow
def test_a_run_that_died_while_codes_were_clustered_ends_with_the_same_bits(whole, data, tmp_path, monkeypatch):
    def die(*_, **__):
        raise OSError("the machine went off")

    monkeypatch.setattr("cce.training.codes.fit_to_codes", die)
    with pytest.raises(OSError, match="went off"):
        Trainer(tiny_config(data, **CODES), tmp_path / "run").run()
    monkeypatch.undo()
    assert Trainer.resume(tmp_path / "run").run().curve == whole[1].curve
    assert last_model(tmp_path / "run") == last_model(whole[0])


@pytest.mark.slow
def test_codes_can_be_clustered_in_the_middle_and_training_goes_on(data, tmp_path):
    """The network keeps the optimizer's state, and codebooks learn."""
    config = tiny_config(data, **CODES | {"epochs": 2}, code_epochs=0.5)
    trainer, out = Trainer(config, tmp_path / "run"), tmp_path / "run"
    record = trainer.run()
    (line,) = [line for line in RunFolder(out).read_log() if line["kind"] == "codes"]
    assert line["step"] == 6
    assert [scores["step"] for scores in record.curve] == [9, 13, 17, 22, 26]
    (adam,) = trainer.session.optimizers
    steps = {name: int(adam.state[p]["step"]) for name, p in trainer.session.model.named_parameters()}
    assert {name: step for name, step in steps.items() if "tables.c0" in name or "tables.c1" in name} == {
        "tables.tables.c0.codebook": 20,
        "tables.tables.c1.codebook": 20,
    }
    assert steps["top.0.weight"] == 26
    stopped = Trainer(replace(config, max_steps=10), tmp_path / "stopped")
    stopped.run()
    assert Trainer.resume(tmp_path / "stopped", max_steps=None).run().curve[-1] == record.curve[-1]


@pytest.mark.parametrize("changes", [{"code_epochs": 0.5}, {"code_lr": 0.1}])
@pytest.mark.parametrize("without", [{"method": "hash"}, {"method": "cce-paper"}])
def test_options_of_codes_are_rejected_without_codes(data, tmp_path, changes, without):
    (name,) = changes
    with pytest.raises(ValueError, match=f"^{name} must be left out where no table trains as codes, got "):
        Trainer(tiny_config(data, **CODES | without | changes), tmp_path / "run")


def test_tables_are_found_whatever_their_features_are_called():
    tables = cce.EmbeddingCollection({"a.b": 50, "b": 50}, 4)
    assert paths_of(torch.nn.ModuleDict({"tables": tables}), [tables.tables["a.b"]]) == ["tables.tables.a.b"]


def test_wrong_codes_are_rejected(data):
    for changes, message in (
        ({"code_bits": 4}, "^code_bits must be 0, 8 or 16, got 4"),
        ({"code_epochs": 0.0}, "^code_epochs must be above 0, got 0.0"),
    ):
        with pytest.raises(ValueError, match=message):
            tiny_config(data, **CODES | changes)


@pytest.mark.slow
def test_more_epochs_go_on_with_the_codes(data, tmp_path):
    """As if the run had had so many epochs from the start, but for the clustering in between."""
    out, options = tmp_path / "run", CODES | {"keep_last": 1, "refits": 2, "refit_network": "always"}
    Trainer(tiny_config(data, **options), out).run()
    resumed = Trainer.resume(out, epochs=2)
    assert resumed.session.is_coded
    record = resumed.run()
    whole = Trainer(tiny_config(data, **options | {"epochs": 2}), tmp_path / "whole")
    assert whole.run().curve == record.curve
    assert last_model(tmp_path / "whole") == last_model(out)
    again = Trainer.resume(out)  # no more epochs: as it was
    again.close()
    assert not again.session.is_coded


@pytest.mark.slow
def test_a_run_that_is_still_in_codes_is_evaluated_packed_and_inspected(data, tmp_path):
    trainer = Trainer(tiny_config(data, **CODES), tmp_path / "run")
    after_step = trainer._after_step

    def stop(num_rows):
        after_step(num_rows)
        if trainer.session.step == 6:
            os.kill(os.getpid(), signal.SIGINT)

    trainer._after_step = stop
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    assert cce.summary(load_run(tmp_path / "run").model).tables[0].method == "quantized"
    assert main(["pack", str(tmp_path / "run"), "--out", str(tmp_path / "run.cce")]) == 0
    packed, plain = (load_run(tmp_path / name).evaluate(data).scores["bce"] for name in ("run.cce", "run"))
    assert packed == plain
    assert main(["inspect", str(tmp_path / "run")]) == 0
