"""What is packed comes back. Alone, nothing is sent; what two processes send each other is tested in test_ranks.py."""

import json

import pytest
import torch

from cce.distributed import Ranks, broadcast, check_same, gather_rows, pack, sum_over_ranks, unpack


def test_a_process_that_is_alone_keeps_what_it_has():
    value = {"a": torch.ones(2)}
    assert broadcast(value, Ranks()) is value
    assert gather_rows(value["a"], Ranks()) is value["a"]
    assert sum_over_ranks(torch.ones(2), Ranks()).tolist() == [1, 1]
    check_same(value)


def test_nested_values_come_back_as_they_were():
    value = {
        0: {"step": torch.tensor(3.0), "betas": (0.9, 0.999)},
        "list": [1, None, True, "x", {"=": [2]}],
        "nan": 1e300,
    }
    tensors = {}
    plain = json.loads(json.dumps(pack(value, tensors)))
    back = unpack(plain, tensors)
    assert back == value
    assert list(tensors) == [".0.step"]
    assert isinstance(back[0]["betas"], tuple)


def test_what_cannot_be_saved_is_named():
    with pytest.raises(TypeError, match=r"\.a\.1 must hold plain values and tensors to be saved, got set"):
        pack({"a": [1, {2}]}, {})
