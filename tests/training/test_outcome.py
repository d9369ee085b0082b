"""What a run leaves; runs as a whole are tested in test_trainer.py."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import cce
from cce.diagnostics import summary
from cce.embeddings import CCEEmbedding
from cce.records import read_records
from cce.training import Trainer
from cce.training.building import build_refit
from cce.training.outcome import best_model, environment, keep_record
from helpers.runs import CCE, tiny_config


def begun(data, folder, **changes):
    trainer = Trainer(tiny_config(data, **changes), folder / "run")
    trainer.close()
    return trainer


def test_the_best_model_is_that_of_the_best_checkpoint(data, tmp_path):
    trainer = begun(data, tmp_path)
    session = trainer.session
    assert best_model(session, trainer.folder) == (session.model, -1, [])
    session.step = 3
    session.stopping.add(0.5, 3)
    trainer.save()
    before = session.model.top[0].weight.clone()
    with torch.no_grad():
        session.model.top[0].weight.zero_()
        model, step, damage = best_model(session, trainer.folder)
    assert (step, damage) == (3, [])
    assert torch.equal(model.top[0].weight, before)


def test_the_record_has_what_int8_rows_held_while_they_trained(data, tmp_path):
    """Their rows with three bytes each, the optimizer's state, and gradients of the ids of a batch."""
    trainer = begun(data, tmp_path, **CCE)
    session = trainer.session
    tables = [table for table in session.model.modules() if isinstance(table, CCEEmbedding)]
    (optimizer,) = session.optimizers
    expected = [
        (table.nbytes, sum(getattr(v, "nbytes", 0) for v in optimizer.state[table.anchor].values())) for table in tables
    ]
    num_rows = [table.rows.num_rows - 1 for table in tables]
    trainer.finalizing.finalize()
    record = keep_record(trainer, {})
    found = [table for table in record.tables if table.method == "cce"]
    assert len(found) == 2
    assert [(table.codes_nbytes, table.optimizer_nbytes) for table in found] == expected
    assert [table.gradient_nbytes for table in found] == [min(64, number) * (8 * 4 + 3 * 8) for number in num_rows]


def test_the_record_is_written(data, tmp_path):
    trainer = begun(data, tmp_path)
    session = trainer.session
    session.stopwatch.seconds = {"train": 2.0, "save": 1.0}
    session.loader.position = 100
    record = keep_record(trainer, {"bce": 0.5, "auc": 0.75})
    assert read_records(trainer.folder.record) == [record]
    assert (record.scores, record.seconds, record.samples_per_second) == ({"bce": 0.5, "auc": 0.75}, 3.0, 50.0)


def test_the_record_tells_what_each_table_weighs_and_where_the_run_ran(data, tmp_path):
    trainer = begun(data, tmp_path)
    record = keep_record(trainer, {"bce": 0.5, "auc": 0.75})
    assert sum(table.num_params for table in record.tables) == record.num_params
    assert sum(table.nbytes for table in record.tables) == record.nbytes
    assert {table.optimizer_nbytes for table in record.tables} == {0}
    assert all(table.gradient_nbytes == table.codebook_nbytes for table in record.tables)  # dense
    assert {table.clustering_nbytes for table in record.tables} == {0}  # none was clustered
    assert record.training_nbytes == record.nbytes + sum(table.codebook_nbytes for table in record.tables)


def test_the_record_tells_what_clusterings_held_of_the_tables_that_were_clustered(data, tmp_path):
    trainer = begun(data, tmp_path)
    session = trainer.session
    folder = trainer.folder
    name = summary(session.model).largest.name
    folder.append_log({"kind": "cluster", "step": 7, "table": name})
    record = keep_record(trainer, {})
    held = {table.name: table.clustering_nbytes for table in record.tables}
    assert {each for each, nbytes in held.items() if nbytes} == {name}
    assert held[name] >= 120 * 8 * 4  # vectors of all ids: the vocabulary is smaller than a block
    assert record.environment["torch"] == torch.__version__


def test_the_record_tells_what_refits_held_if_there_were_any(data, tmp_path):
    trainer = begun(data, tmp_path, **CCE, refits=1)
    session = trainer.session
    trainer.finalizing.finalize()
    before = keep_record(trainer, {})
    clustered = [table.clustering_nbytes for table in before.tables if table.clustering_nbytes]
    assert len(clustered) == 1  # tables are finalized one after the other
    refit = trainer.refitting.refit = build_refit(trainer.config, session.model, trainer.data.rows("train"))
    trainer.refitting.held = trainer.refitting.nbytes_held()
    trained = trainer.finalizing.trained_nbytes
    trainer.finalizing.trained_nbytes = {name: dict.fromkeys(held, 0) for name, held in trained.items()}
    after = keep_record(trainer, {})
    held = [table.clustering_nbytes for table in after.tables if table.clustering_nbytes]
    assert len(refit.groups) == len(refit.features) == 2  # which take turns; the third table is full
    assert held == [max(refit.nbytes(feature) for feature in refit.features)]
    assert held[0] > clustered[0]


def test_it_tells_versions_and_the_machine_in_words_of_json():
    facts = json.loads(json.dumps(environment()))
    assert facts["torch"] == torch.__version__
    assert facts["cce"] == cce.__version__
    assert facts["cores"] >= 1
    assert facts["threads"] == torch.get_num_threads()
    assert facts["processor"]


def test_of_a_checkout_it_tells_the_commit():
    commit = environment()["commit"]
    assert commit is None or re.fullmatch(r"[0-9a-f]{12}\+?", commit)


@pytest.mark.slow
def test_without_a_checkout_there_is_no_commit(tmp_path):
    package = tmp_path / "cce"
    shutil.copytree(Path(cce.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    code = "from cce.training.outcome import environment; print(environment()['commit'])"
    command = [sys.executable, "-c", code]
    found = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "None"
