"""Dense, sparse and differentiable gradients are the same sums."""

import pytest
import torch

from cce import compiled
from cce.kernels import Bags
from cce.kernels.cpu import LaunchPlan
from cce.kernels.cpu.gradients import (
    dense_gradients,
    differentiable_gradients,
    sparse_gradients,
)
from helpers.linear_tables import TABLES, run_forward, seeded, some_ids

pytestmark = pytest.mark.skipif(not compiled.available, reason="compiled loops need numba")


@pytest.mark.parametrize("jagged", [False, True])
@pytest.mark.parametrize("num_ids", [0, 100, 600])
@pytest.mark.parametrize("needed", [(True, True), (False, True), (False, False)])
def test_all_three_ways_agree(jagged, num_ids, needed):
    tables = [TABLES["cce"](padding_idx=3), TABLES["robe of odd blocks"]()]
    plan, codebooks = LaunchPlan([t.layout() for t in tables]), [t.codebook.detach() for t in tables]
    ids, bags = some_ids(num_ids, 2), None
    if jagged:
        offsets = torch.cat([torch.arange(0, 2 * num_ids, 2), torch.tensor([2 * num_ids])])
        ids, bags = ids.flatten(), Bags(offsets if num_ids else offsets[:1], num_ids // 2, torch.rand(2 * num_ids))
    vectors, saved = run_forward(plan.bind(codebooks), ids, bags)
    grad = torch.randn(vectors.shape, generator=seeded(1))
    ways = dense_gradients, sparse_gradients, differentiable_gradients
    dense, sparse, plain = (way(saved, grad, needed) for way in ways)
    for need, one, other, third in zip(needed, dense, sparse, plain, strict=True):
        if not need:
            assert one is other is third is None
            continue
        torch.testing.assert_close(one, other.to_dense(), rtol=0, atol=0)
        torch.testing.assert_close(one, third, rtol=1e-4, atol=1e-4)
