import torch

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


def test_least_squares_start_leaves_a_residual_orthogonal_to_every_row():
    weight = torch.randn(400, 4, dtype=torch.float64)
    table = cce.embeddings.CompositionalSumEmbedding.from_table(weight, num_params=160)
    residual = weight - table.to_dense()
    rows = table.lookup(torch.arange(400))[0].squeeze(1)
    for term in range(2):
        sums = torch.zeros(len(table.codebook), 4, dtype=torch.float64).index_add_(0, rows[:, term], residual)
        assert sums.abs().max() < 1e-4


def test_a_table_that_is_a_sum_is_recovered():
    truth = cce.embeddings.CompositionalSumEmbedding(
        400, 4, num_rows=10, generator=torch.Generator().manual_seed(3)
    ).double()
    twin = cce.embeddings.CompositionalSumEmbedding(
        400, 4, num_rows=10, generator=torch.Generator().manual_seed(3)
    ).double()
    with torch.no_grad():
        twin.codebook.zero_()
    twin.fit_to(truth.to_dense())
    torch.testing.assert_close(twin.to_dense(), truth.to_dense(), atol=1e-5, rtol=1e-5)
