"""Layouts say what a lookup must know of a table."""

import torch

from cce.indexing.sources import describe
from helpers.linear_tables import NUM_IDS, TABLES


def test_apart_every_term_is_a_column():
    layout = TABLES["hash-embedding of 3"]().layout()
    assert (layout.columns, layout.terms, layout.dim) == (1, 3, 16)
    assert (layout.apart.columns, layout.apart.terms, layout.apart.dim) == (3, 1, 48)


def test_rows_lie_within_the_codebook_for_every_table():
    for make in TABLES.values():
        layout = make().layout()
        entries = describe(layout.sources)
        assert len(entries) == layout.num_slots
        assert max(entry.first_row + entry.num_rows for entry in entries) <= layout.num_rows
        rows = layout.rows(torch.arange(NUM_IDS))
        assert rows.shape == (NUM_IDS, layout.columns, layout.terms)
        assert rows.max() < layout.num_rows
