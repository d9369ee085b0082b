"""Alone, nothing is sent; what two processes send each other is tested in test_ranks.py."""

import torch

from cce.distributed import Ranks, broadcast, check_same, gather_rows, sum_over_ranks


def test_a_process_that_is_alone_keeps_what_it_has():
    value = {"a": torch.ones(2)}
    assert broadcast(value, Ranks()) is value
    assert gather_rows(value["a"], Ranks()) is value["a"]
    assert sum_over_ranks(torch.ones(2), Ranks()).tolist() == [1, 1]
    check_same(value)
