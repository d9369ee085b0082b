"""Raw rows to batches: the ids and transforms of a data set, without one on disk."""

import math

import numpy as np
import pytest
import torch

from cce.data.preparation.job import Columns, Reading
from cce.data.raw_rows import RawRows, RowEncoder
from cce.data.vocabulary import Vocabulary
from cce.hashing import Texts
from cce.schema import Feature, Schema

COLUMNS = Columns("y", ("user",), ("age",), ("tags",), weight="w")
SCHEMA = Schema((Feature("user", 3), Feature("tags", 3, multi_hot=True)), ("age",), has_weights=True)
VOCABULARIES = {
    "user": Vocabulary.build("user", "integers", Texts.of(["7", "-8"])),
    "tags": Vocabulary.build("tags", "words", Texts.of(["a", "b"])),
}
ROWS = [
    {"user": "007", "tags": "b|new|a", "age": "1"},
    {"user": "-8", "tags": "", "age": None},
    {"user": None, "tags": None, "age": "-5"},
]


def encoder(**changes):
    return RowEncoder(SCHEMA, RawRows(COLUMNS, Reading(), **changes), VOCABULARIES)


def test_unseen_and_missing_values_are_id_zero_and_missing_words_of_a_bag_are_left_out():
    (batch,) = encoder().batches([*ROWS, {**ROWS[0], "user": "9"}], batch_size=10)
    assert batch.offsets.tolist() == [0, 1, 2, 3, 4, 7, 7, 7, 10]
    assert batch.ids.tolist() == [1, 2, 0, 0, 2, 0, 1, 2, 0, 1]
    assert batch.dense.flatten().tolist() == pytest.approx([math.log(2), 0, 0, math.log(2)])
    assert batch.labels.isnan().all()
    assert batch.weights is None


def test_batches_are_of_the_size_that_is_asked_for():
    rows = [{"user": number, "tags": "a", "age": number} for number in (7, -8, 7, 1, 2)]
    found = list(encoder().batches(rows, batch_size=2))
    assert [len(batch) for batch in found] == [2, 2, 1]
    assert torch.cat([batch.ids[: len(batch)] for batch in found]).tolist() == [1, 2, 1, 0, 0]
    assert list(encoder().batches([], batch_size=2)) == []


def test_labels_and_weights_are_read_if_they_are_asked_for():
    rows = [
        {"user": 7, "tags": "a", "age": 1, "y": "1", "w": 0.5},
        {"user": 7, "tags": "a", "age": 1, "y": "0", "w": 2},
    ]
    (batch,) = encoder(has_labels=True).batches(rows, batch_size=10)
    assert (batch.labels.tolist(), batch.weights.tolist()) == ([1, 0], [0.5, 2])
    rows[1]["y"] = "2"
    with pytest.raises(ValueError, match=r"^rows, row 2: y must be 0 or 1 without a threshold, got 2\.$"):
        list(encoder(has_labels=True).batches(rows, batch_size=10))
    assert np.isnan(next(encoder().batches(rows, batch_size=10)).labels.numpy()).all()


def test_rows_that_are_all_left_out_are_no_batch():
    rows = RawRows(Columns("y", ("user",)), Reading(drop_label=3), has_labels=True)
    kept = RowEncoder(Schema((Feature("user", 3),)), rows, VOCABULARIES)
    assert list(kept.batches([{"user": 7, "y": 3}], batch_size=10)) == []
    (batch,) = kept.batches([{"user": 7, "y": 3}, {"user": -8, "y": 1}], batch_size=10)
    assert batch.ids.tolist() == [[2]]
