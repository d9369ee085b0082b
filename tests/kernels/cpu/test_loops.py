"""Bags across blocks, ranges of threads and features."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cce import compiled
from cce.kernels import Bags, LaunchPlan
from helpers.linear_tables import NUM_IDS, TABLES, look_up, plain, seeded, some_ids

pytestmark = pytest.mark.skipif(not compiled.available, reason="compiled loops need numba")


def pooled(tables, ids, offsets, batch, weights):
    sums = []
    for place, table in enumerate(tables):
        for bag in range(batch):
            own = slice(int(offsets[place * batch + bag]), int(offsets[place * batch + bag + 1]))
            vectors = plain(table, ids[own])
            sums.append((vectors if weights is None else vectors * weights[own].unsqueeze(1)).sum(0))
    return torch.stack(sums).view(len(tables), batch, -1).transpose(0, 1).flatten(1)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.sampled_from([0, 0, 1, 2, 255, 256, 257, 600]), min_size=2, max_size=8),
    weighted=st.booleans(),
    save=st.booleans(),
)
def test_bags_of_any_lengths(lengths, weighted, save):
    lengths = lengths[: len(lengths) // 2 * 2]
    tables, batch = [TABLES["cce"](padding_idx=3), TABLES["full"]()], len(lengths) // 2
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    ids = some_ids(int(offsets[-1]))
    ids[::5] = 3
    weights = torch.randn(len(ids), generator=seeded(1)) if weighted else None
    plan, codebooks = LaunchPlan([t.layout() for t in tables]), [t.codebook for t in tables]
    bags = Bags(offsets, batch, weights)
    with torch.set_grad_enabled(save):
        vectors = look_up(plan, ids, codebooks, bags=bags)
    expected = pooled(tables, ids, offsets, batch, weights)
    torch.testing.assert_close(vectors, expected, rtol=1e-4, atol=1e-4)
    if save:
        upstream = torch.randn(vectors.shape, generator=seeded(2))
        found, right = (torch.autograd.grad(v, codebooks, upstream) for v in (vectors, expected))
        for one, other in zip(found, right, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


def test_a_wrong_id_in_a_bag_is_named():
    table, ids = TABLES["cce"](), some_ids(600)
    ids[599] = NUM_IDS
    plan, bags = LaunchPlan([table.layout()] * 2, names=["a", "b"]), Bags(torch.tensor([0, 300, 600]), 1)
    with pytest.raises(IndexError, match=rf"ids of b must lie in \[0, {NUM_IDS}\), got {NUM_IDS}"):
        look_up(plan, ids, [table.codebook] * 2, bags=bags)
