"""Features, schemas and batches: plain values that go to JSON and back."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cce.schema import Batch, Feature, Schema

SCHEMA = Schema((Feature("user", 100), Feature("tags", 7, multi_hot=True)), ("age",), has_weights=True)


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.text(min_size=1), st.integers(1, 2**62), st.booleans()), unique_by=lambda f: f[0]),
    st.booleans(),
)
def test_a_schema_survives_json(features, has_weights):
    schema = Schema(tuple(Feature(*feature) for feature in features), ("a dense one\n",), has_weights)
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


def test_a_schema_knows_its_sizes():
    assert SCHEMA.vocabulary_sizes == {"user": 100, "tags": 7}
    assert SCHEMA.is_multi_hot
    assert not Schema((Feature("user", 100),)).is_multi_hot


def test_a_batch_goes_to_a_device_with_all_its_tensors():
    batch = Batch(torch.zeros(2, 1), torch.ones(3).long(), torch.zeros(2), torch.tensor([0, 1, 3]), torch.ones(2))
    moved = batch.to("meta")
    assert len(batch) == 2
    for name in ("dense", "ids", "labels", "offsets", "weights"):
        assert getattr(moved, name).is_meta
        assert getattr(moved, name).shape == getattr(batch, name).shape
    assert Batch(torch.zeros(2, 1), torch.ones(2, 3).long(), torch.zeros(2)).to("meta").weights is None
