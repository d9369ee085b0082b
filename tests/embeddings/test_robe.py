import torch

import cce
from cce.testing import LinearContract
from helpers import slow


class TestRobe(LinearContract):
    table_class = cce.embeddings.RobeEmbedding

    def reference(self, table, x):
        size, numbers = len(table.codebook), []
        for i in range(table.embedding_dim):
            block, within = divmod(x * table.embedding_dim + i, table.block_size)
            numbers.append(table.codebook[(slow.row(block, table.hash.seeds[0], size) + within) % size, 0])
        return torch.stack(numbers)


class TestBlocksOfOne(TestRobe, variant=True):
    options = {"block_size": 1}  # noqa: RUF012


class TestBlocksLargerThanAVector(TestRobe, variant=True):
    options = {"block_size": 24}  # noqa: RUF012


def test_a_block_is_contiguous_and_wraps_around():
    table = cce.embeddings.RobeEmbedding(5000, 8, size=13, block_size=8)
    rows = table.lookup(torch.arange(5000))[0].squeeze(-1)
    assert torch.equal((rows[:, 1:] - rows[:, :-1]) % 13, torch.ones(5000, 7, dtype=torch.long))
    assert (rows[:, 1:] < rows[:, :-1]).any()  # some blocks did pass the end


def test_by_default_a_vector_is_four_blocks():
    assert cce.embeddings.RobeEmbedding(100, 16, size=50).block_size == 4
