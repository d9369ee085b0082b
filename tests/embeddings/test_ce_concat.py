import torch

import cce
from cce.testing import LinearContract
from helpers import slow


class TestHashed(LinearContract):
    table_class = cce.embeddings.CompositionalConcatEmbedding

    def reference(self, table, x):
        num_rows = table.split.num_rows
        pieces = [
            table.codebook[column * num_rows + slow.row(x, seeds, num_rows)]
            for column, seeds in enumerate(table.split.seeds)
        ]
        return torch.cat(pieces)


class TestQuotientRemainder(LinearContract, variant=True):
    table_class = cce.embeddings.CompositionalConcatEmbedding
    embedding_dims = (3, 7, 24)
    options = {"split": "quotient-remainder"}  # noqa: RUF012
    num_variance_seeds = 400  # the quotients' tables have a few rows only
    fills_budget = False  # the remainder's table cannot use more rows than there are ids

    def reference(self, table, x):
        pieces, start = [], 0
        for digit, radix in zip(slow.digits(x, table.split.rows_per_column), table.split.rows_per_column, strict=True):
            pieces.append(table.codebook[start + digit])
            start += radix
        return torch.cat(pieces)

    def test_no_two_ids_share_a_vector(self):
        assert len(torch.unique(self.make().to_dense(), dim=0)) == 1000
