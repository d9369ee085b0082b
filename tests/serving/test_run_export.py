"""Runs as they are exported: with their vocabularies, or with the reason why there are none."""

import numpy as np
import pytest

import cce
from cce.serving import export_run, numpy_reader
from helpers.raw_runs import train_on_raw
from helpers.runs import tiny_data

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    train_on_raw(folder)
    return folder


def test_vocabularies_of_all_features_come_along(folder, tmp_path):
    run = cce.load_run(folder / "run")
    made = export_run(run, tmp_path / "out", verify=folder / "data")
    assert made.verification is not None
    assert made.verification.difference <= 1e-5
    assert made.missing == ""
    for place, (feature, vocabulary) in enumerate(run.vocabularies.items()):
        reader = numpy_reader.open_vocabulary(made.path / f"vocabulary/{place:03d}.safetensors")
        values = vocabulary.values(np.arange(1, len(vocabulary) + 1))
        assert reader.find(values).tolist() == list(range(1, len(vocabulary) + 1)), feature
        assert reader.find(["never seen", "ü"]).tolist() == [0, 0]


def test_a_run_without_vocabulary_is_exported_and_says_why(folder, tmp_path):
    run = cce.load_run(folder / "run", data=tmp_path / "nowhere")
    (folder / "run" / "inputs").rename(tmp_path / "inputs") if (folder / "run" / "inputs").exists() else None
    made = export_run(run, tmp_path / "out")
    assert "has its vocabularies in the data set" in made.missing
    assert not (made.path / "vocabulary").exists()


def test_data_of_other_columns_is_rejected(folder, tmp_path):
    with pytest.raises(ValueError, match="verify must name data with the columns and ids of the run"):
        export_run(cce.load_run(folder / "run"), tmp_path / "out", verify=tiny_data(tmp_path / "other"))
    assert not (tmp_path / "out").exists()
