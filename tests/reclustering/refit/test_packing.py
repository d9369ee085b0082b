"""Blocks of symmetric matrices, packed and written out again."""

import pytest
import torch

from cce.reclustering.refit.packing import block_dim_of, pack, packed_size, unpack


@pytest.mark.parametrize(("dim", "block_dim"), [(16, 16), (16, 4), (12, 6), (3, 1), (1, 1)])
def test_what_was_packed_comes_back(dim, block_dim):
    mixing = torch.randn(5, dim // block_dim, block_dim, block_dim, generator=torch.Generator().manual_seed(0))
    blocks = (mixing + mixing.mT).reshape(5, dim, block_dim)
    packed = pack(blocks)
    assert packed.shape == (5, packed_size(dim, block_dim))
    assert block_dim_of(packed.shape[1], dim) == block_dim
    assert torch.equal(unpack(packed, dim), blocks)
    assert torch.equal(unpack(packed[0], dim), blocks[0])


def test_triangles_follow_each_other_row_by_row():
    blocks = torch.tensor([[1.0, 2.0], [2.0, 3.0], [4.0, 5.0], [5.0, 6.0]])
    assert pack(blocks).tolist() == [1, 2, 3, 4, 5, 6]
