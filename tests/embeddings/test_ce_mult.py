import cce
from cce.testing import EmbeddingContract
from helpers import slow


class TestHashed(EmbeddingContract):
    table_class = cce.embeddings.CompositionalProductEmbedding

    def reference(self, table, x):
        num_rows, product = table.split.num_rows, 1
        for i, seeds in enumerate(table.split.seeds):
            product = product * table.codebook[i * num_rows + slow.row(x, seeds, num_rows)]
        return product


class TestQuotientRemainder(EmbeddingContract, variant=True):
    table_class = cce.embeddings.CompositionalProductEmbedding
    options = {"split": "quotient-remainder"}  # noqa: RUF012
    num_variance_seeds = 100  # the quotients' table has a few rows only

    def reference(self, table, x):
        p = table.split.rows_per_column[0]
        return table.codebook[x % p] * table.codebook[p + x // p]


def test_starts_with_numbers_of_both_signs():
    table = cce.create_embedding("ce-mult", 100, 8, compression=2, seed=0)
    assert 0.3 < (table.codebook > 0).double().mean() < 0.7
