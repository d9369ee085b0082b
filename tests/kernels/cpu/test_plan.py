"""Launch plans are layouts in numbers, and know when they are old."""

import itertools
import weakref

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from cce.indexing.sources import OwnRow, RowSource, Slot, SlotKind
from cce.indexing.state import versions_of
from cce.kernels import LaunchPlan, Layout
from cce.kernels.cpu.plan import splits_by_column
from helpers.linear_tables import TABLES


class Ranges(RowSource):
    """Rows in any ranges."""

    def __init__(self, ranges):
        self.slots, self.ranges = range(len(ranges)), ranges

    def rows(self, ids):
        raise NotImplementedError

    def describe(self):
        return [Slot(SlotKind.OWN, first, count) for first, count in self.ranges]


@pytest.mark.parametrize(
    ("name", "splits"),
    [
        ("cce", True),
        ("pq", True),
        ("ce-concat of digits", True),
        ("robe", False),
        ("full", True),
        ("cce of sums", True),
    ],
)
def test_columns_that_share_no_row_can_be_summed_side_by_side(name, splits):
    assert splits_by_column(TABLES[name]().layout()) is splits


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), min_size=2, max_size=6), st.sampled_from([1, 2]))
@example([(0, 9), (2, 1), (5, 2), (12, 1)], 2)  # a long range that reaches past its neighbour
def test_columns_split_only_if_no_two_of_them_share_a_row(ranges, terms):
    ranges = ranges[: len(ranges) // terms * terms]
    layout = Layout(9, len(ranges) // terms, terms, 1, 99, (Ranges(ranges),))
    rows = [set() for _ in range(layout.columns)]
    for slot, (first, count) in enumerate(ranges):
        rows[slot // terms] |= set(range(first, first + count))
    assert not (splits_by_column(layout) and any(a & b for a, b in itertools.combinations(rows, 2)))


@pytest.mark.parametrize("num_threads", [1, 2, 3, 8])
@pytest.mark.parametrize("names", [("cce",), ("robe",), ("cce", "full", "hash", "robe")])
def test_every_column_of_every_feature_is_the_work_of_one_thread(num_threads, names):
    tables = [TABLES[name]() for name in names]
    plan = LaunchPlan([table.layout() for table in tables])
    seen = []
    for share in plan.work_shares(num_threads):
        for _, features, units in share:
            for place, first, count in units.tolist():
                seen += [(int(features["place"][place]), column) for column in range(first, first + count)]
    assert sorted(seen) == [(f, c) for f, table in enumerate(tables) for c in range(table.layout().columns)]
    assert len(plan.work_shares(num_threads)) <= num_threads


def test_a_plan_knows_when_index_state_has_moved_or_a_shape_has_changed():
    table = TABLES["cce"]()
    plan = LaunchPlan([table.layout()])
    assert len(plan.state) == 2  # pointers and the seeds of the helper, once each
    assert plan.is_current([table.codebook])
    assert not plan.is_current([table.codebook[1:]])
    table.helper.seeds.share_memory_()
    assert not plan.is_current([table.codebook])


def test_a_plan_knows_when_a_module_was_changed():
    table = TABLES["cce"]()
    plan = LaunchPlan([table.layout()], versions=versions_of(table.modules()))
    table.eval()
    assert plan.is_current([table.codebook])
    table.assignments.note = "anything"
    assert not plan.is_current([table.codebook])


def test_a_launch_knows_its_codebooks_by_where_they_lie_and_how():
    table = TABLES["cce"]()
    plan, codebook = LaunchPlan([table.layout()]), table.codebook.detach()
    launch = plan.bind([codebook])
    assert launch.is_current([codebook])
    assert launch.is_current([codebook.view(codebook.shape)])
    others = [codebook.clone(), codebook.view(torch.int32), codebook.as_strided(codebook.shape, (1, 160)), codebook[1:]]
    assert not any(launch.is_current([other]) for other in others)
    assert not launch.is_current([codebook.as_subclass(type("Wrapped", (torch.Tensor,), {}))])
    across = codebook.t().contiguous().t()
    assert not plan.bind([across]).is_current([across])  # it runs on a copy
    table.helper.seeds.share_memory_()
    assert not launch.is_current([codebook])


def test_index_state_outlives_its_table_but_a_plan_does_not_hold_the_table():
    table = TABLES["cce"]()
    plan, held = LaunchPlan([table.layout()], versions=versions_of(table.modules())), weakref.ref(table.codebook)
    del table
    assert held() is None
    assert {tensor.dtype for tensor in plan.state} == {torch.uint8, torch.int64}


def test_a_codebook_too_small_for_its_rows_is_refused():
    with pytest.raises(ValueError, match="codebook must have at least 4 rows, got 3"):
        LaunchPlan([Layout(4, 1, 1, 2, 3, (OwnRow(4),))])
