"""Ids are int32 or int64 in [0, num_embeddings), and whatever else is refused by name."""

import re

import pytest
import torch

from cce.indexing import check_ids


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("shape", [(), (10,), (2, 5), (5, 1, 2)])
def test_ids_from_zero_to_the_last_pass_in_any_shape(dtype, shape):
    count = torch.Size(shape).numel()
    check_ids(torch.arange(10, dtype=dtype)[-count:].reshape(shape), 10)


def test_ids_that_are_not_contiguous_pass_and_are_checked():
    ids = torch.tensor([[0, 99], [1, 99], [2, 99]])
    check_ids(ids[:, 0], 3)
    with pytest.raises(IndexError, match=re.escape("ids must lie in [0, 3), got 99.")):
        check_ids(ids.T, 3)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(("ids", "named"), [([0, 10], 10), ([3, 12, 11], 12), ([-1, 3], -1), ([-7, 50, -2], -7)])
def test_an_id_outside_the_vocabulary_is_named_with_the_range_and_negative_ones_first(ids, named, dtype):
    with pytest.raises(IndexError, match=re.escape(f"ids must lie in [0, 10), got {named}.")):
        check_ids(torch.tensor(ids, dtype=dtype), 10)


def test_the_ends_of_int64_are_told_apart_to_the_last_bit():
    check_ids(torch.tensor([2**63 - 2]), 2**63 - 1)
    with pytest.raises(IndexError, match=re.escape(f"ids must lie in [0, {2**63 - 1}), got {2**63 - 1}.")):
        check_ids(torch.tensor([2**63 - 1]), 2**63 - 1)
    with pytest.raises(IndexError, match=re.escape(f"got {-(2**63)}.")):
        check_ids(torch.tensor([-(2**63)]), 2**63)


def test_where_there_are_no_values_only_the_type_is_checked():
    check_ids(torch.full((3,), 99, device="meta"), 10)
    with pytest.raises(TypeError, match=re.escape("got torch.float32.")):
        check_ids(torch.full((3,), 0.5, device="meta"), 10)


def _checked(ids):
    check_ids(ids, 10)
    return ids + 1


def test_inside_vmap_values_are_not_looked_at_but_types_are():
    assert torch.equal(torch.vmap(_checked)(torch.arange(3)), torch.arange(1, 4))
    with pytest.raises(TypeError, match=re.escape("ids must be int32 or int64 in [0, 10), got torch.float32.")):
        torch.vmap(_checked)(torch.rand(3))


@pytest.mark.slow
def test_inside_torch_compile_the_check_breaks_no_graph():
    compiled = torch.compile(_checked, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(torch.arange(3)), torch.arange(1, 4))
