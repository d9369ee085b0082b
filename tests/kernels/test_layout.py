"""Layouts say what a lookup must know, and programs say it in numbers."""

import itertools

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from cce.indexing.sources import OwnRow, RowSource, Slot, SlotKind, describe
from cce.kernels import Layout, Program
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
    assert TABLES[name]().layout().splits_by_column is splits


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), min_size=2, max_size=6), st.sampled_from([1, 2]))
@example([(0, 9), (2, 1), (5, 2), (12, 1)], 2)  # a long range that reaches past its neighbour
def test_columns_split_only_if_no_two_of_them_share_a_row(ranges, terms):
    ranges = ranges[: len(ranges) // terms * terms]
    layout = Layout(9, len(ranges) // terms, terms, 1, 99, (Ranges(ranges),))
    rows = [set() for _ in range(layout.columns)]
    for slot, (first, count) in enumerate(ranges):
        rows[slot // terms] |= set(range(first, first + count))
    assert not (layout.splits_by_column and any(a & b for a, b in itertools.combinations(rows, 2)))


@pytest.mark.parametrize("num_threads", [1, 2, 3, 8])
@pytest.mark.parametrize("names", [("cce",), ("robe",), ("cce", "full", "hash", "robe")])
def test_every_column_of_every_feature_is_the_work_of_one_thread(num_threads, names):
    tables = [TABLES[name]() for name in names]
    program = Program([table.layout() for table in tables])
    seen = []
    for share in program.shares(num_threads):
        for _, features, units in share:
            for place, first, count in units[:, :3].tolist():
                seen += [(int(features[place, 0]), column) for column in range(first, first + count)]
    assert sorted(seen) == [(f, c) for f, table in enumerate(tables) for c in range(table.layout().columns)]
    assert len(program.shares(num_threads)) <= num_threads


def test_apart_every_term_is_a_column():
    layout = TABLES["hash-embedding of 3"]().layout()
    assert (layout.columns, layout.terms, layout.dim) == (1, 3, 16)
    assert (layout.apart.columns, layout.apart.terms, layout.apart.dim) == (3, 1, 48)


def test_a_program_knows_when_a_fact_has_moved():
    table = TABLES["cce"]()
    program = Program([table.layout()])
    assert len(program.facts) == 3  # pointers, the seeds behind them, and those of the helper, once each
    assert program.is_fresh
    table.helper.seeds.share_memory_()
    assert not program.is_fresh


def test_facts_outlive_their_table():
    program = Program([TABLES["cce"]().layout()])
    assert {fact.dtype for fact in program.facts} == {torch.uint8, torch.int64}


def test_a_codebook_too_small_for_its_rows_is_refused():
    with pytest.raises(ValueError, match="codebook must have at least 4 rows, got 3"):
        Program([Layout(4, 1, 1, 2, 3, (OwnRow(4),))])


def test_rows_lie_within_the_codebook_for_every_table():
    for make in TABLES.values():
        layout = make().layout()
        entries = describe(layout.sources)
        assert len(entries) == layout.num_slots
        assert max(entry.first_row + entry.num_rows for entry in entries) <= layout.num_rows
