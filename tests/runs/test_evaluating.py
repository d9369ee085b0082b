"""Scores of a run on prepared data; on raw rows they are in test_loaded.py."""

import pytest

import cce
from helpers.runs import tiny_config, tiny_data

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluating")
    record = cce.training.Trainer(tiny_config(tiny_data(folder / "data")), folder / "run").run()
    return cce.load_run(folder / "run"), record, folder / "data"


def test_evaluation_gives_the_scores_of_the_record(run):
    loaded, record, data = run
    found = loaded.evaluate(data)
    assert loaded.step == min(record.curve, key=lambda scores: scores["bce"])["step"]
    assert (found.name, found.num_rows, found.scores) == ("test", 100, record.scores)
    assert list(loaded.evaluate(data, split="validation", metrics=["ece"]).scores) == ["ece"]


def test_what_does_not_fit_is_rejected(run, tmp_path):
    loaded, _, data = run
    other = tiny_data(tmp_path / "other", vocabulary_sizes=(50, 60, 30))
    with pytest.raises(ValueError, match="data must have the columns and ids that the model was trained on"):
        loaded.evaluate(other)
    with pytest.raises(ValueError, match="split must be one of train, validation, test; got 'tests'"):
        loaded.evaluate(data, split="tests")
    with pytest.raises(FileNotFoundError, match=r"^data must be the folder of a data set or a file of raw rows, got"):
        loaded.evaluate(tmp_path / "nowhere")
