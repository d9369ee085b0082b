"""What forward saves are the rows of every id, however often it occurs."""

import pytest
import torch

from cce import compiled
from cce.kernels import Bags
from cce.kernels.cpu import LaunchPlan
from cce.kernels.cpu.deduplicate import CHUNK
from helpers.linear_tables import TABLES, run_forward, some_ids

pytestmark = pytest.mark.skipif(not compiled.available, reason="compiled loops need numba")


@pytest.mark.parametrize("high", [10, 700])
@pytest.mark.parametrize("batch", [0, 1, 256, CHUNK + 300])
def test_rows_by_id_are_those_of_the_table(batch, high):
    tables, ids = [TABLES["cce"](), TABLES["full"]()], some_ids(batch, 2, high=high)
    plan, codebooks = LaunchPlan([t.layout() for t in tables]), [t.codebook.detach() for t in tables]
    _, saved = run_forward(plan.bind(codebooks), ids, None)
    for place, table in enumerate(tables):
        rows = torch.from_numpy(saved.rows_by_id(place)).long()
        assert torch.equal(rows, table.lookup(ids[:, place])[0].flatten(1))
    assert saved.counts == [batch, batch]


def test_bags_have_their_own_numbers_of_ids():
    table, ids = TABLES["cce"](), some_ids(5)
    plan = LaunchPlan([table.layout()] * 2)
    codebooks = [table.codebook.detach()] * 2
    _, saved = run_forward(plan.bind(codebooks), ids, Bags(torch.tensor([0, 1, 1, 2, 5]), 2))
    assert saved.counts == [1, 4]
    assert torch.equal(torch.from_numpy(saved.rows_by_id(1)).long(), table.lookup(ids[1:])[0].flatten(1))
