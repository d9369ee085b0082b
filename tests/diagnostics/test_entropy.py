"""Entropies of pointers that were written by hand, so that the answer is known."""

import math
import re
from collections import Counter
from itertools import combinations, pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import cce
from cce.diagnostics.table_collapse import pointer_table
from cce.indexing import Assignments
from cce_lab.variants import HelpersEmbedding

KINDS = (cce.embeddings.ClusteredEmbedding, HelpersEmbedding)


def table_with(pointers, num_rows=16, kind=cce.embeddings.ClusteredEmbedding):
    """A CCE table whose learned pointers are `pointers`, one row for each id."""
    pointers = torch.as_tensor(pointers)
    num_ids, num_columns = pointers.shape
    table = kind(num_ids, num_columns, num_rows=num_rows, num_columns=num_columns)
    table.assignments.write(torch.arange(num_ids), pointers)
    return table


def entropy(values):
    counts = Counter(values)
    total = sum(counts.values())
    return -sum(n / total * math.log(n / total) for n in counts.values())


def slow_entropies(pointers):
    num_columns = len(pointers[0])
    return tuple(
        min(
            entropy(tuple(row[c] for c in chosen) for row in pointers) for chosen in combinations(range(num_columns), j)
        )
        for j in range(1, num_columns + 1)
    )


def test_by_hand():
    """Column 0: shares 1/2, 1/4, 1/4. Column 1: 1/2, 1/2. Together: four different pairs."""
    first, second, both = (1.5 * math.log(2), math.log(2), math.log(4))
    assert cce.diagnostics.pointer_entropies(table_with([[0, 1], [0, 0], [3, 1], [7, 0]])) == pytest.approx(
        (second, both), rel=1e-15
    )
    assert cce.diagnostics.pointer_entropies(table_with([[0], [0], [3], [7]])) == pytest.approx((first,), rel=1e-15)


@pytest.mark.parametrize("num_rows", [4, 256, 300])  # uint8 and uint16
def test_uniform_pointers_reach_the_log_of_the_rows(num_rows):
    ids = torch.arange(num_rows**2 if num_rows < 256 else 4 * num_rows)
    table = table_with(torch.stack([ids % num_rows, ids % num_rows], dim=1), num_rows)
    assert cce.diagnostics.pointer_entropies(table, max_order=1) == pytest.approx((math.log(num_rows),), rel=1e-14)


def test_independent_uniform_columns_reach_j_times_the_log():
    ids = torch.arange(4**3)
    pointers = torch.stack([ids % 4, ids // 4 % 4, ids // 16], dim=1)
    assert cce.diagnostics.pointer_entropies(table_with(pointers)) == pytest.approx(
        [j * math.log(4) for j in (1, 2, 3)], rel=1e-14
    )


def test_a_column_that_collapsed_has_none():
    ids = torch.arange(64)
    pointers = torch.stack([ids % 8, torch.full_like(ids, 5), ids // 8], dim=1)
    found = cce.diagnostics.pointer_entropies(table_with(pointers))
    assert found[0] == 0
    assert math.copysign(1, found[0]) == 1  # no negative zero
    assert found == pytest.approx((0, math.log(8), math.log(64)))


def test_a_column_that_repeats_another_under_other_names_adds_nothing():
    ids = torch.arange(100)
    first = ids % 7
    renamed = torch.randperm(16, generator=torch.Generator().manual_seed(0))[first]
    found = cce.diagnostics.pointer_entropies(table_with(torch.stack([first, renamed], dim=1)))
    assert found[1] == pytest.approx(found[0], rel=1e-14)


def test_one_id_has_no_entropy():
    assert cce.diagnostics.pointer_entropies(table_with([[3, 1, 2]])) == (0, 0, 0)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4).flatmap(lambda c: st.lists(st.lists(st.integers(0, 5), min_size=c, max_size=c), min_size=1)))
def test_equals_counting_and_never_falls_with_the_order(pointers):
    found = cce.diagnostics.pointer_entropies(table_with(pointers))
    assert found == pytest.approx(slow_entropies(pointers), abs=1e-12)
    assert all(low <= high + 1e-12 for low, high in pairwise(found))
    assert found[-1] <= math.log(len(pointers)) + 1e-12


def test_joint_codes_never_overflow():
    """Written as one number in base 2**30, the pointers of these three ids would differ by multiples of 2**64 alone."""
    top = 2**30 - 1
    table = cce.embeddings.ProductQuantizedEmbedding(3, 3, num_rows=2, num_columns=3)
    table.assignments = Assignments(3, 3, 2**30)
    table.assignments.write(torch.arange(3), torch.tensor([[0, top, top], [16, top, top], [32, top, top]]))
    assert cce.diagnostics.pointer_entropies(table) == pytest.approx((0, 0, math.log(3)))


def test_max_order_stops_earlier():
    table = table_with(torch.arange(40).view(10, 4) % 5)
    everything = cce.diagnostics.pointer_entropies(table)
    assert len(everything) == 4
    for order in (1, 2, 3, 4):
        assert cce.diagnostics.pointer_entropies(table, max_order=order) == everything[:order]


@pytest.mark.parametrize("max_order", [0, -1, 5])
def test_a_wrong_max_order_is_rejected_with_its_range(max_order):
    table = table_with(torch.zeros(10, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match=re.escape(f"max_order must lie in [1, 5), got {max_order}.")):
        cce.diagnostics.pointer_entropies(table, max_order=max_order)


@pytest.mark.slow
@pytest.mark.parametrize(("num_columns", "orders"), [(5, 5), (6, 6), (7, 2), (16, 2)])
def test_beyond_six_columns_two_orders_are_given_unless_asked(num_columns, orders):
    table = table_with(torch.randint(4, (20, num_columns), generator=torch.Generator().manual_seed(0)))
    assert len(cce.diagnostics.pointer_entropies(table)) == orders
    assert len(cce.diagnostics.pointer_entropies(table, max_order=3)) == 3


# -- which pointers ----------------------------------------------------------------------------------------------------


def test_only_learned_pointers_count():
    pointers = torch.zeros(50, 2, dtype=torch.int64)
    table = cce.embeddings.ClusteredEmbedding(1000, 2, num_rows=16, num_columns=2, num_learned=50)
    table.assignments.write(torch.arange(50), pointers)
    assert torch.equal(pointer_table(table), pointers)
    assert cce.diagnostics.pointer_entropies(table) == (0, 0)


def test_where_none_are_learned_the_hashed_ones_count():
    table = cce.embeddings.ClusteredEmbedding(
        1000, 2, num_rows=4, num_columns=2, num_learned=0, generator=torch.Generator().manual_seed(0)
    )
    assert torch.equal(pointer_table(table), table.assignments(torch.arange(1000)))
    first, both = cce.diagnostics.pointer_entropies(table)
    assert 0.98 * math.log(4) < first <= math.log(4)
    assert 0.98 * math.log(16) < both <= math.log(16)


def test_helpers_do_not_count():
    """They are hashed anew at every clustering, and say nothing of what was learned."""
    pointers = torch.arange(20).view(20, 1).repeat(1, 2) % 3
    found = [cce.diagnostics.pointer_entropies(table_with(pointers, kind=kind)) for kind in KINDS]
    assert found[0] == found[1]


def test_a_cce_table_has_entropies_of_the_ids_that_have_rows():
    counts = torch.arange(40) % 2 * 2
    table = cce.embeddings.CCEEmbedding(40, 4, num_rows=16, num_columns=2, counts=counts)
    with pytest.raises(ValueError, match="a table that trains as int8 rows has no codebook yet: finalize it first"):
        cce.diagnostics.pointer_entropies(table)
    table.finalize()
    pointers = torch.arange(20).view(20, 1).repeat(1, 2) % 3
    table.pointers.store.write(0, pointers)
    assert cce.diagnostics.pointer_entropies(table) == cce.diagnostics.pointer_entropies(table_with(pointers))


def test_a_table_without_pointers_has_those_of_its_rows():
    table = cce.create_embedding("ce-concat", 500, 8, compression=4, seed=0)
    rows = table.split(torch.arange(500))
    assert cce.diagnostics.pointer_entropies(table) == pytest.approx(slow_entropies(rows.tolist()), abs=1e-12)


@pytest.mark.parametrize(("method", "num_columns"), [("full", 1), ("hash", 1), ("ce-sum", 2), ("robe", 8), ("pq", 4)])
def test_every_method_that_looks_up_rows_has_entropies(method, num_columns):
    table = cce.create_embedding(method, 200, 8, compression=1 if method == "full" else 4, seed=0)
    assert pointer_table(table).shape == (200, num_columns)
    assert 0 < cce.diagnostics.pointer_entropies(table)[0] <= math.log(200) + 1e-12


def test_the_full_table_has_the_most():
    assert cce.diagnostics.pointer_entropies(cce.create_embedding("full", 200, 8)) == pytest.approx(
        (math.log(200),), rel=1e-14
    )


@pytest.mark.parametrize("method", ["dhe", "tt", "ce-mult", "low-rank", "mixed-dim", "collide"])
def test_a_method_that_looks_up_no_rows_is_rejected_by_name(method):
    table = cce.create_embedding(method, 200, 8, compression=2, seed=0)
    with pytest.raises(TypeError, match=f"table must look up rows to have entropies; method '{method}' does not."):
        cce.diagnostics.pointer_entropies(table)


def test_learning_to_collide_has_entropies_once_it_has_clustered():
    table = cce.embeddings.CollidingEmbedding(200, 8, num_rows=4, generator=torch.Generator().manual_seed(0))
    table.cluster(generator=torch.Generator().manual_seed(0))
    expected = slow_entropies(table.assignments.pointers.to_tensor().tolist())
    assert cce.diagnostics.pointer_entropies(table) == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
def test_clustering_planted_clusters_ends_at_the_entropy_of_the_clusters():
    settings = cce.clustering.ClusterSettings(init="k-means++")
    table = cce.embeddings.ClusteredEmbedding(120, 4, num_rows=3, num_columns=1, settings=settings)
    weight = 10 * torch.eye(4)[torch.arange(120) % 3]
    table.fit_to(weight, generator=torch.Generator().manual_seed(0))
    assert cce.diagnostics.pointer_entropies(table) == pytest.approx((math.log(3),))
