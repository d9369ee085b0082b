"""Parquet files: vocabularies, first rows, and what is damaged."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cce.data.prepare import arrow


def test_a_vocabulary_survives_its_file(tmp_path):
    arrow.save_vocabulary(tmp_path / "v.parquet", arrow.as_values(["x", "é"]), np.array([3, 1]))
    values, counts = arrow.load_vocabulary(tmp_path / "v.parquet")
    assert (values.to_pylist(), counts.tolist()) == (["x", "é"], [3, 1])


def test_a_damaged_parquet_file_is_told_by_name(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"no parquet at all")
    with pytest.raises(ValueError, match=r"x\.parquet must be a whole Parquet file, and it is damaged"):
        arrow.parquet_columns(tmp_path / "x.parquet")


@pytest.mark.parametrize(("num_rows", "copied"), [(3, 3), (10, 10), (50, 10)])
def test_first_rows_are_copied(tmp_path, num_rows, copied):
    pq.write_table(pa.table({"a": list(range(10)), "b": list("abcdefghij")}), tmp_path / "x", row_group_size=20)
    assert arrow.save_first_rows(tmp_path / "x", tmp_path / "y", num_rows) == copied
    assert pq.read_table(tmp_path / "y").to_pydict() == {"a": list(range(copied)), "b": list("abcdefghij"[:copied])}


def test_a_file_without_rows_has_no_first_rows(tmp_path):
    pq.write_table(pa.table({"a": pa.array([], pa.int8())}), tmp_path / "x")
    assert arrow.save_first_rows(tmp_path / "x", tmp_path / "y", 5) == 0
    assert arrow.parquet_columns(tmp_path / "y") == ["a"]
