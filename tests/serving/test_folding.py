"""Helpers left out: exactly, and only where the table does not grow."""

import pytest
import torch

import cce
from cce.serving import freeze_table
from cce.serving.folding import fold_helpers, has_zero_helpers
from cce_lab.variants import CircularEmbedding, HelpersEmbedding, SummedEmbedding


def make(kind=cce.ClusteredEmbedding, num_ids=300, num_rows=40, **options):
    return kind(num_ids, 8, num_rows=num_rows, num_columns=2, generator=torch.Generator().manual_seed(0), **options)


def test_helpers_that_are_zero_are_dropped():
    table = make()
    assert not has_zero_helpers(table)
    with torch.no_grad():
        table.tables[:, 1:] = 0
    assert has_zero_helpers(table)
    frozen = freeze_table(table)
    assert torch.equal(frozen(torch.arange(300)), table.to_dense())
    assert frozen.rows.values.shape == (2 * 40, 4)
    assert frozen.layout.terms == 1


@pytest.mark.parametrize("kind", [SummedEmbedding, CircularEmbedding, HelpersEmbedding])
def test_zero_helpers_are_dropped_from_every_kind_of_table(kind):
    table = make(kind, num_learned=200)
    with torch.no_grad():
        table.tables[:, 1:] = 0
    frozen = freeze_table(table)
    assert torch.equal(frozen(torch.arange(300)), table.to_dense())
    assert frozen.nbytes < table.nbytes


def test_pairs_become_rows_where_few_occur():
    table = make(num_ids=60, num_rows=100)  # at most 60 pairs in each column, of 200 rows
    folded = fold_helpers(table, 4)
    frozen = freeze_table(table)
    assert folded is not None
    assert folded.pointers.num_rows <= 60
    assert torch.equal(frozen(torch.arange(60)), table.to_dense())
    assert frozen.layout.terms == 1
    assert frozen.nbytes < table.nbytes


def test_a_table_is_not_folded_where_that_makes_it_larger_or_is_not_exact():
    assert fold_helpers(make(num_ids=3_000), 4) is None  # 1,600 pairs need pointers of 16 bits
    assert fold_helpers(make(num_ids=60, num_rows=100, num_learned=50), 4) is None  # hashed ids
    assert fold_helpers(make(SummedEmbedding, num_ids=60, num_rows=100), 4) is None
    assert fold_helpers(make(HelpersEmbedding, num_ids=60, num_rows=100), 4) is None
    assert fold_helpers(make(num_ids=60, num_rows=10_000), 4) is None  # too many kinds of pairs to mark
