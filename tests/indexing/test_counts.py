"""Counters of ids."""

import torch

from cce.indexing import IdCounts


def test_ids_are_counted_with_repetition():
    counts = IdCounts(5)
    counts.add(torch.tensor([0, 3, 3]))
    counts.add(torch.tensor([3]))
    assert counts.counts.tolist() == [1, 0, 0, 3, 0]


def test_ids_without_a_counter_are_passed_over():
    counts = IdCounts(3)
    counts.add(torch.tensor([2, 3, 100]))
    assert counts.counts.tolist() == [0, 0, 1]


def test_under_vmap_nothing_is_counted():
    counts = IdCounts(3)

    def look(ids):
        counts.add(ids)
        return ids

    torch.vmap(look)(torch.tensor([[0], [1]]))
    assert counts.counts.sum() == 0
