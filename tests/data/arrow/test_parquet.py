"""Parquet files: vocabularies, and what is damaged."""

import numpy as np
import pytest

from cce.data.arrow.blocks import as_values
from cce.data.arrow.tables import load_vocabulary, parquet_columns, save_vocabulary


def test_a_vocabulary_survives_its_file(tmp_path):
    save_vocabulary(tmp_path / "v.parquet", as_values(["x", "é"]), np.array([3, 1]))
    values, counts = load_vocabulary(tmp_path / "v.parquet")
    assert (values.to_pylist(), counts.tolist()) == (["x", "é"], [3, 1])


def test_a_damaged_parquet_file_is_told_by_name(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"no parquet at all")
    with pytest.raises(ValueError, match=r"x\.parquet must be a whole Parquet file, and it is damaged"):
        parquet_columns(tmp_path / "x.parquet")
