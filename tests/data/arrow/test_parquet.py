"""Parquet files: vocabularies, and what is damaged."""

import numpy as np

from cce.data.arrow.blocks import as_values
from cce.data.arrow.tables import load_vocabulary, save_vocabulary


def test_a_vocabulary_survives_its_file(tmp_path):
    save_vocabulary(tmp_path / "v.parquet", as_values(["x", "é"]), np.array([3, 1]))
    values, counts = load_vocabulary(tmp_path / "v.parquet")
    assert (values.to_pylist(), counts.tolist()) == (["x", "é"], [3, 1])
