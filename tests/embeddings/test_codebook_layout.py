"""Where the tables of CCE lie, against a codebook that is numbered by hand."""

import torch

import cce
from cce.embeddings.codebook_layout import CodebookLayout

LAYOUT = CodebookLayout(num_columns=2, num_helpers=2, num_rows=10, width=4, is_sum=False)


def test_tables_lie_one_below_the_other():
    assert LAYOUT.shape == (60, 4)
    assert (LAYOUT.clustered, LAYOUT.helpers) == ([0, 3], [1, 2, 4, 5])
    assert LAYOUT.first_rows(LAYOUT.helpers) == [10, 20, 40, 50]
    assert LAYOUT.slots == (2, 3)
    assert CodebookLayout(2, 2, 10, 8, is_sum=True).slots == (1, 6)


def test_rows_are_arranged_by_column_and_term():
    learned, hashed = torch.tensor([[1, 2]]), torch.tensor([[3, 4, 5, 6]])
    assert LAYOUT.arrange(learned, hashed).tolist() == [[[1, 13, 24], [32, 45, 56]]]
    assert CodebookLayout(2, 2, 10, 8, is_sum=True).arrange(learned, hashed).tolist() == [[[1, 13, 24, 32, 45, 56]]]


def test_clustered_and_helper_rows_are_all_rows():
    clustered = torch.cat([LAYOUT.clustered_rows(torch.arange(10), column) for column in range(2)])
    assert torch.equal(torch.cat([clustered, LAYOUT.helper_rows()]).sort().values, torch.arange(60))


def test_without_helpers_there_are_no_helper_rows():
    assert CodebookLayout(4, 0, 10, 4, is_sum=False).helper_rows().tolist() == []


def test_a_table_looks_up_the_rows_that_its_layout_arranges():
    table = cce.ClusteredEmbedding(100, 8, num_rows=7, num_columns=2, num_helpers=2)
    ids = torch.arange(100)
    rows, _ = table.lookup(ids)
    assert torch.equal(rows, table.codebook_layout().arrange(table.assignments(ids), table.helper(ids)))
