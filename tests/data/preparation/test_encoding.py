"""The last step: blocks into records, at their place in the file of their split, the same bytes every time."""

import numpy as np
import pytest

from cce.data.arrow.blocks import Words, as_values, save_block
from cce.data.loader import SplitRows
from cce.data.preparation.job import Columns
from cce.data.preparation.reading import BlockTask, encode_block
from cce.data.preparation.vocabulary import ids_file, split_file
from cce.data.record_format import create_files, record_dtype
from cce.schema import Feature, Schema

COLUMNS = Columns("y", ("a",), ("x",), multi_hot=("t",), weight="w")
SCHEMA = Schema((Feature("a", 100), Feature("t", 70_000, multi_hot=True)), ("x",), has_weights=True)


def write_block(folder):
    """Four rows of two splits, and the ids of its values."""
    numbers = {
        "label": np.array([1, 0, 1, 0.0]),
        "weight": np.array([1, 2, 3, 4.0]),
        "dense 0": np.array([5, 6, 7, 8.0]),
    }
    a = Words(np.array([1, -1, 0, 1], np.int32), as_values(["p", "q"]))
    t = Words(np.array([0, 1, 1, 0], np.int32), as_values(["r", "s"]), np.array([2, 0, 1, 1]))
    save_block(folder / "b.arrow", numbers, {"word a": a, "word t": t})
    np.save(split_file(folder / "b.arrow"), np.array([0, 2, 0, 2], np.uint8))
    np.save(ids_file(folder / "b.arrow", 0), np.array([11, 22, 33]))  # the last is of missing values
    np.save(ids_file(folder / "b.arrow", 1), np.array([0, 69_999, 0]))
    return BlockTask(
        block=folder / "b.arrow",
        folder=folder,
        schema=SCHEMA,
        columns=COLUMNS,
        row_starts={"train": 1, "validation": 0, "test": 0},
        value_starts={("train", 1): 3, ("validation", 1): 0, ("test", 1): 0},
    )


def create(folder):
    values = {("train", 1): 6, ("validation", 1): 0, ("test", 1): 1}
    create_files(folder, SCHEMA, {"train": 3, "validation": 0, "test": 2}, values)


def test_rows_go_to_their_place_with_the_ids_of_their_values(tmp_path):
    task = write_block(tmp_path)
    create(tmp_path)
    assert encode_block(task) == 4
    train = SplitRows(tmp_path, "train", SCHEMA).fetch(np.array([1, 2]))
    assert (train.labels.tolist(), train.weights.tolist(), train.dense.tolist()) == ([1, 1], [1, 3], [[5], [7]])
    assert train.ids[:2].tolist() == [22, 11]
    assert np.fromfile(tmp_path / "train.1.values", "<i4").tolist() == [0, 0, 0, 0, 69_999, 69_999]
    assert np.fromfile(tmp_path / "train.1.offsets", "<i8").tolist() == [0, 0, 5, 6]
    test = SplitRows(tmp_path, "test", SCHEMA).fetch(np.array([0, 1]))
    assert (test.ids.tolist(), test.offsets.tolist()) == ([33, 22, 0], [0, 1, 2, 2, 3])  # 33 is missing


def test_a_block_that_is_done_is_not_done_again(tmp_path):
    task = write_block(tmp_path)
    create(tmp_path)
    encode_block(task)
    create(tmp_path)
    assert encode_block(task) == 4
    assert not np.fromfile(tmp_path / "train.rows", np.uint8).any()


@pytest.mark.slow
def test_bytes_between_fields_are_zero(tmp_path):
    dtype = record_dtype(SCHEMA)
    task = write_block(tmp_path)
    for _ in range(20):
        create(tmp_path)
        task.done_file.unlink(missing_ok=True)
        encode_block(task)
        rows = np.fromfile(tmp_path / "train.rows", np.uint8).reshape(3, dtype.itemsize)
        used = dtype.fields["id0"][1] + 1
        assert used < dtype.itemsize
        assert not rows[:, used:].any()
