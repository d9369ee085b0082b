"""What a run leaves; runs as a whole are tested in test_trainer.py."""

import torch

from cce.data import PreparedData
from cce.distributed import Ranks
from cce.records import read_records
from cce.training.outcome import best_model, keep_record
from cce.training.session import Session
from helpers.runs import tiny_config


def test_the_best_model_is_that_of_the_best_checkpoint(data, tmp_path):
    session = Session(tiny_config(data), PreparedData.open(data), ranks=Ranks())
    assert best_model(session, tmp_path) == (session.model, -1, [])
    session.step = 3
    session.stopping.add(0.5, 3)
    session.save(tmp_path)
    before = session.model.top[0].weight.clone()
    with torch.no_grad():
        session.model.top[0].weight.zero_()
        model, step, damage = best_model(session, tmp_path)
    assert (step, damage) == (3, [])
    assert torch.equal(model.top[0].weight, before)


def test_the_record_is_written(data, tmp_path):
    session = Session(tiny_config(data), PreparedData.open(data), ranks=Ranks())
    session.stopwatch.seconds = {"train": 2.0, "save": 1.0}
    session.loader.position = 100
    record = keep_record(session, session.model, {"bce": 0.5, "auc": 0.75}, tmp_path)
    assert read_records(tmp_path / "record.jsonl") == [record]
    assert (record.scores, record.seconds, record.samples_per_second) == ({"bce": 0.5, "auc": 0.75}, 3.0, 50.0)


def test_the_record_tells_what_each_table_weighs_and_where_the_run_ran(data, tmp_path):
    session = Session(tiny_config(data), PreparedData.open(data), ranks=Ranks())
    record = keep_record(session, session.model, {"bce": 0.5, "auc": 0.75}, tmp_path)
    assert sum(table["num_params"] for table in record.tables) == record.num_params
    assert sum(table["nbytes"] for table in record.tables) == record.nbytes
    assert {table["optimizer_nbytes"] for table in record.tables} == {0}
    assert record.environment["torch"] == torch.__version__
