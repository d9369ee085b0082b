import torch

import cce
from cce.testing import LinearContract
from helpers import slow


class TestFull(LinearContract):
    table_class = cce.embeddings.FullEmbedding
    compression = 1

    def reference(self, table, x):
        return table.codebook[x]

    def test_equals_torch(self):
        table, ids = self.make(), self.ids(4, 5)
        assert torch.equal(table(ids), torch.nn.functional.embedding(ids, table.codebook))

    def test_needs_no_budget(self):
        assert cce.create_embedding("full", 10, 4).num_params == 40

    def test_starts_from_a_trained_table_exactly(self):
        weight = torch.randn(50, 8)
        table = cce.embeddings.FullEmbedding.from_table(weight, num_params=400)
        torch.testing.assert_close(table.to_dense(), weight)


class TestHashingTrick(LinearContract):
    table_class = cce.embeddings.HashingTrickEmbedding

    def reference(self, table, x):
        return table.codebook[slow.row(x, table.hash.seeds[0], table.hash.num_rows)]


class TestSignedHashingTrick(LinearContract, variant=True):
    table_class = cce.embeddings.HashingTrickEmbedding
    options = {"signed": True}  # noqa: RUF012

    def reference(self, table, x):
        row = slow.row(x, table.hash.seeds[0], table.hash.num_rows)
        return slow.sign(x, table.sign.seeds[0]) * table.codebook[row]
