"""Vectors of a feature in a file, with the raw values beside them."""

import numpy as np
import pytest
import torch

import cce
from cce.data.arrow.tables import load_vocabulary
from cce.runs import vectors
from cce.runs.vectors import FeatureVectors, values_file, write_values, write_vectors
from helpers.files import small_files

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(trained):
    return cce.load_run(trained)


def test_rows_are_the_vectors_of_ids_in_blocks_of_any_size(run, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(vectors, "BLOCK", 7)
    out = tmp_path / "vectors.npy"
    write_vectors(run.vectors("item"), out, progress=False)
    write_values(run.vocabularies["item"], values_file(out), progress=False)
    found = np.load(out, mmap_mode="r")
    assert np.array_equal(found, run.model.tables.tables["item"].to_dense().detach().numpy())
    assert values_file(out).name == "vectors.values.parquet"
    from pyarrow import parquet

    table = parquet.read_table(values_file(out))
    known, _ = load_vocabulary(trained.parent / "data" / "vocabulary" / "001.parquet")
    assert table["value"].to_pylist() == [None, *known.to_pylist()]
    assert table["id"].to_pylist() == list(range(len(found)))


def test_a_table_that_all_features_share_is_read_at_the_right_place(run):
    features = {"user": 30, "item": 50, "tags": 6}
    tables = cce.EmbeddingCollection(features, 8, cap=200, unified=True, seed=0)
    ids = torch.arange(50)
    batch = torch.stack([torch.zeros_like(ids), ids, torch.zeros_like(ids)], dim=1)
    found = FeatureVectors(torch.nn.ModuleList([tables]), run.schema, "item")
    assert found.shape == (50, 8)
    assert np.array_equal(found(ids), tables(batch)[:, 1].detach().numpy())


def test_wrong_features_and_full_disks_are_one_line(run, tmp_path):
    with pytest.raises(ValueError, match=r"^feature must be one of .*; got 'itme'\.$"):
        run.vectors("itme")
    with pytest.raises(
        ValueError, match=r"^model must have its tables in an EmbeddingCollection, got none with 'item'"
    ):
        FeatureVectors(torch.nn.Linear(1, 1), run.schema, "item")
    with small_files(500), pytest.raises(OSError, match="File too large"):
        write_vectors(run.vectors("item"), tmp_path / "a.npy", progress=False)
    assert list(tmp_path.iterdir()) == []
