import cce
from cce.testing import LinearContract
from helpers import slow


class TestHashed(LinearContract):
    table_class = cce.embeddings.CompositionalSumEmbedding

    def reference(self, table, x):
        num_rows = table.split.num_rows
        rows = [i * num_rows + slow.row(x, seeds, num_rows) for i, seeds in enumerate(table.split.seeds)]
        return sum(table.codebook[row] for row in rows)


class TestQuotientRemainder(LinearContract, variant=True):
    table_class = cce.embeddings.CompositionalSumEmbedding
    options = {"split": "quotient-remainder"}  # noqa: RUF012

    def reference(self, table, x):
        p = table.split.rows_per_column[0]
        return table.codebook[x % p] + table.codebook[p + x // p]


class TestThreeTables(TestHashed, variant=True):
    options = {"num_tables": 3}  # noqa: RUF012
