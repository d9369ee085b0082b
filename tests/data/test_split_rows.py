"""Rows by number: every column as it was written, multi-hot bags feature by feature."""

import numpy as np
import pytest
import torch

from cce.data.loader import DECODED_ROWS, SplitRows
from cce.data.record_format import create_files, id_dtype, offsets_file, record_dtype, rows_file, values_file, write_at
from cce.schema import Feature, Schema

NUM_ROWS = DECODED_ROWS + 100  # more than one fetch decodes at once
ONE_HOT = Schema((Feature("a", 200), Feature("b", 70_000), Feature("c", 2**40)), ("x", "y"), has_weights=True)
BAGS = Schema((Feature("a", 200), Feature("tags", 300, multi_hot=True), Feature("b", 9, multi_hot=True)))


@pytest.fixture
def written(tmp_path):
    generator = np.random.default_rng(0)
    records = np.zeros(NUM_ROWS, record_dtype(ONE_HOT))
    records["label"], records["weight"] = generator.random((2, NUM_ROWS))
    records["dense"] = generator.random((NUM_ROWS, 2))
    for index, feature in enumerate(ONE_HOT.features):
        records[f"id{index}"] = generator.integers(0, feature.num_embeddings, NUM_ROWS)
    create_files(tmp_path, ONE_HOT, {"train": NUM_ROWS})
    write_at(tmp_path / rows_file("train"), 0, records)
    return tmp_path, records


def test_any_rows_come_as_they_were_written(written):
    folder, records = written
    rows = np.random.default_rng(1).integers(0, NUM_ROWS, NUM_ROWS + 50)
    batch = SplitRows(folder, "train", ONE_HOT).fetch(rows)
    assert batch.labels.numpy().tolist() == records["label"][rows].tolist()
    assert batch.weights.numpy().tolist() == records["weight"][rows].tolist()
    assert batch.dense.numpy().tolist() == records["dense"][rows].tolist()
    for index in range(3):
        assert batch.ids[:, index].tolist() == records[f"id{index}"][rows].tolist()
    assert (batch.ids.dtype, batch.dense.dtype, batch.labels.dtype) == (torch.int64, torch.float32, torch.float32)


def test_no_rows_are_a_batch_too(written):
    batch = SplitRows(written[0], "train", ONE_HOT).fetch(np.empty(0, np.int64))
    assert (len(batch), batch.ids.shape, batch.dense.shape) == (0, (0, 3), (0, 2))


def test_bags_come_feature_by_feature(tmp_path):
    bags = {1: [[5, 299], [], [7], [1, 2, 3]], 2: [[], [8, 8], [], [1]]}
    create_files(tmp_path, BAGS, {"test": 4}, {("test", index): sum(map(len, some)) for index, some in bags.items()})
    records = np.zeros(4, record_dtype(BAGS))
    records["id0"] = [11, 22, 33, 44]
    write_at(tmp_path / rows_file("test"), 0, records)
    for index, some in bags.items():
        kind = id_dtype(BAGS.features[index].num_embeddings)
        write_at(tmp_path / values_file("test", index), 0, np.concatenate(some).astype(kind))
        write_at(tmp_path / offsets_file("test", index), 1, np.cumsum([len(bag) for bag in some]))
    batch = SplitRows(tmp_path, "test", BAGS).fetch(np.array([3, 1, 0]))
    assert batch.ids.tolist() == [44, 22, 11, 1, 2, 3, 5, 299, 1, 8, 8]
    assert batch.offsets.tolist() == [0, 1, 2, 3, 6, 6, 8, 9, 11, 11]
    for feature, rows in ((0, [[44], [22], [11]]), (1, [[1, 2, 3], [], [5, 299]]), (2, [[1], [8, 8], []])):
        for row, bag in enumerate(rows):
            start, stop = batch.offsets[feature * 3 + row], batch.offsets[feature * 3 + row + 1]
            assert batch.ids[start:stop].tolist() == bag
