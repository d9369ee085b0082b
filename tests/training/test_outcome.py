"""What a run leaves; runs as a whole are tested in test_trainer.py."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import cce
from cce.embeddings import CCEEmbedding
from cce.records import read_records
from cce.training import Trainer
from cce.training.outcome import best_model, environment, go_back_to_best, keep_record
from helpers.runs import CCE, tiny_config


def begun(data, folder, **changes):
    trainer = Trainer(tiny_config(data, **changes), folder / "run")
    trainer.close()
    return trainer


def test_the_model_goes_back_to_that_of_the_best_checkpoint(data, tmp_path):
    trainer = begun(data, tmp_path)
    session = trainer.session
    assert best_model(session, trainer.folder) == (session.model, "")
    session.step = 3
    session.stopping.add(0.5, 3)
    trainer.save()
    before = session.model.top[0].weight.clone()
    session.step = 4
    with torch.no_grad():
        session.model.top[0].weight.zero_()
    model, damage = best_model(session, trainer.folder)
    assert damage == ""
    assert torch.equal(model.top[0].weight, before)
    go_back_to_best(session, trainer.folder)
    assert torch.equal(session.model.top[0].weight, before)


def test_the_record_has_what_int8_rows_held_while_they_trained(data, tmp_path):
    """Their rows with three bytes each, the optimizer's state, and gradients of the ids of a batch."""
    trainer = begun(data, tmp_path, **CCE)
    session = trainer.session
    tables = [table for table in session.model.modules() if isinstance(table, CCEEmbedding)]
    optimizer = session.optimizer
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
    assert record.training_nbytes == record.nbytes + sum(table.codebook_nbytes for table in record.tables)


def test_it_tells_versions_and_the_machine_in_words_of_json():
    facts = json.loads(json.dumps(environment()))
    assert facts["torch"] == torch.__version__
    assert facts["cce"] == cce.__version__
    assert facts["cores"] >= 1
    assert facts["threads"] == torch.get_num_threads()
    assert facts["processor"]


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
