"""Dense and sparse gradients are the same sums."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import cce
from cce import compiled
from cce.kernels import Bags, LaunchPlan
from cce.kernels.cpu.gradients import dense_gradients, sparse_gradients
from helpers.linear_tables import TABLES, run_forward, seeded, some_ids

pytestmark = pytest.mark.skipif(not compiled.available, reason="compiled loops need numba")


@pytest.mark.parametrize("jagged", [False, True])
@pytest.mark.parametrize("num_ids", [0, 100, 600])
@pytest.mark.parametrize("needed", [(True, True), (False, True), (False, False)])
def test_both_ways_agree(jagged, num_ids, needed):
    tables = [TABLES["cce"](padding_idx=3), TABLES["robe of odd blocks"]()]
    plan, codebooks = LaunchPlan([t.layout() for t in tables]), [t.codebook.detach() for t in tables]
    ids, bags = some_ids(num_ids, 2), None
    if jagged:
        offsets = torch.cat([torch.arange(0, 2 * num_ids, 2), torch.tensor([2 * num_ids])])
        ids, bags = ids.flatten(), Bags(offsets if num_ids else offsets[:1], num_ids // 2, torch.rand(2 * num_ids))
    vectors, saved = run_forward(plan.bind(codebooks), ids, bags)
    grad = torch.randn(vectors.shape, generator=seeded(1))
    dense, sparse = (way(saved, grad, needed) for way in (dense_gradients, sparse_gradients))
    for need, one, other in zip(needed, dense, sparse, strict=True):
        assert (one is other is None) if not need else torch.equal(one, other.to_dense())


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    num_ids=st.sampled_from([1, 63, 64, 65, 200, 40_000]),
    places=st.lists(st.integers(0, 10**6), max_size=300),
    padding=st.booleans(),
)
def test_used_rows_are_listed_once_in_order_with_the_sums_of_their_gradients(num_ids, places, padding):
    """Rows lie at both ends of words of 64 bits."""
    table = cce.embeddings.FullEmbedding(
        num_ids, 4, sparse=True, padding_idx=0 if padding else None, generator=seeded()
    )
    ids = torch.tensor(places, dtype=torch.int64) % num_ids
    gradient = torch.autograd.grad(table(ids), table.codebook, torch.ones(len(ids), 4))[0]
    used, counts = torch.unique(ids[ids != 0] if padding else ids, return_counts=True)
    assert gradient.is_coalesced()
    assert torch.equal(gradient.indices()[0], used)
    assert torch.equal(gradient.values()[:, 0], counts.float())
    assert gradient.shape == (num_ids, 4)
