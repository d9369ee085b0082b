"""The rows that a batch used, each once and in order."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import cce
from cce import compiled
from helpers.linear_tables import seeded

pytestmark = pytest.mark.skipif(not compiled.available, reason="compiled loops need numba")


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    num_ids=st.sampled_from([1, 63, 64, 65, 200, 40_000]),
    places=st.lists(st.integers(0, 10**6), max_size=300),
    padding=st.booleans(),
)
def test_used_rows_are_listed_once_in_order_with_the_sums_of_their_gradients(num_ids, places, padding):
    """Few ids of many rows are sorted, others marked in bits; rows lie at both ends of words of 64."""
    table = cce.FullEmbedding(num_ids, 4, sparse=True, padding_idx=0 if padding else None, generator=seeded())
    ids = torch.tensor(places, dtype=torch.int64) % num_ids
    gradient = torch.autograd.grad(table(ids), table.codebook, torch.ones(len(ids), 4))[0]
    used, counts = torch.unique(ids[ids != 0] if padding else ids, return_counts=True)
    assert gradient.is_coalesced()
    assert torch.equal(gradient.indices()[0], used)
    assert torch.equal(gradient.values()[:, 0], counts.float())
    assert gradient.shape == (num_ids, 4)
