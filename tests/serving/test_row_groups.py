"""Sources of rows for inference: the same rows as in training, for every source there is."""

import pytest
import torch

from cce.indexing import PointerStore, RowSource
from cce.serving.row_groups import PointerRows, freeze_source
from helpers.frozen import LINEAR, NUM_IDS, make_table

IDS = torch.arange(NUM_IDS)


@pytest.mark.parametrize(("method", "options"), LINEAR, ids=str)
def test_rows_are_those_of_training_and_lie_in_their_tables(method, options):
    table = make_table(method, options)
    sources = table.layout().sources if hasattr(table, "layout") else []
    for source in sources:
        group = freeze_source(source)
        rows = group(IDS)
        assert torch.equal(rows, source.rows(IDS))
        first, num_rows = torch.tensor(group.tables()).view(-1, 2).T
        assert bool(((rows >= first) & (rows < first + num_rows)).all())
        assert group.spec()["slots"] == list(source.slots)


@pytest.mark.parametrize(("num_rows", "bits"), [(2, 1), (4, 2), (16, 4), (17, 8), (256, 8), (60_000, 16), (70_000, 32)])
@pytest.mark.parametrize("num_columns", [1, 3])
def test_pointers_of_every_width_are_read(num_rows, bits, num_columns):
    pointers = PointerStore(101, num_columns, num_rows)
    rows = torch.randint(0, num_rows, (101, num_columns), generator=torch.Generator().manual_seed(0))
    rows[0], rows[-1] = num_rows - 1, num_rows - 1
    pointers.write(0, rows)
    group = PointerRows(pointers, None, range(num_columns), [0] * num_columns)
    assert group.bits == bits
    assert torch.equal(group(torch.arange(101)), rows)
    assert torch.equal(group.store().read(torch.arange(101)), rows)


def test_a_source_of_somebody_else_is_rejected():
    class Mine(RowSource):
        slots = (0,)

        def rows(self, ids):
            return ids

        def describe(self):
            return []

    with pytest.raises(TypeError, match=r"rows must come from a source of cce\.indexing to be frozen, got Mine"):
        freeze_source(Mine())
