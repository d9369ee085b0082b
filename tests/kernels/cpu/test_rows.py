"""Rows that compiled loops name are those that plain torch names."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import cce
from cce import compiled
from cce.kernels.cpu import rows as compiled_rows
from helpers import slow
from helpers.linear_tables import TABLES, plain, seeded

pytestmark = pytest.mark.skipif(not compiled.available, reason="compiled loops need numba")


@pytest.mark.slow
@settings(deadline=None)
@given(x=st.integers(0, 2**63 - 1), seed=st.integers(0, 1000), num_rows=st.integers(1, 2**31 - 1))
def test_the_hash_of_one_id_is_that_of_exact_arithmetic(x, seed, num_rows):
    seeds = cce.indexing.multiply_shift.draw_seeds(1, seeded(seed))
    assert compiled_rows.hash_one(np.uint64(x), seeds.data_ptr(), num_rows) == slow.row(x, seeds[0], num_rows)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    size=st.integers(1, 400), block_size=st.integers(1, 40), ids=st.lists(st.integers(0, 699), min_size=1, max_size=20)
)
def test_places_of_any_array_and_blocks(size, block_size, ids):
    table = cce.embeddings.RobeEmbedding(700, 16, size=size, block_size=block_size, generator=seeded())
    assert torch.equal(table(torch.tensor(ids)), plain(table, torch.tensor(ids)))


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    num_rows=st.sampled_from([1, 2, 3, 4, 7, 16, 17, 256, 257, 65_537]),
    columns=st.sampled_from([1, 2, 4, 8]),
)
@example(num_rows=1000, columns=4)  # ten bits
@example(num_rows=257, columns=4)
@example(num_rows=2, columns=1)  # eight ids in a byte
@example(num_rows=4, columns=8)
@example(num_rows=16, columns=1)  # two ids in a byte
@example(num_rows=16, columns=4)
def test_pointers_of_any_width_and_number(num_rows, columns):
    table = cce.embeddings.ClusteredEmbedding(700, 16, num_rows=num_rows, num_columns=columns, generator=seeded())
    with torch.no_grad():
        rows = (torch.arange(700).unsqueeze(1) * 31 + torch.arange(columns) * 7) % num_rows
        table.assignments.write(torch.arange(700), rows)
    ids = torch.arange(700)
    assert torch.equal(table(ids), plain(table, ids))


@pytest.mark.parametrize("name", ["full", "ce-concat of digits", "ce-sum of digits"])
def test_all_ids_of_a_vocabulary(name):
    table, ids = TABLES[name](), torch.arange(700)
    assert torch.equal(table(ids), plain(table, ids))
