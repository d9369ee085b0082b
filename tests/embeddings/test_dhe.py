import math

import pytest
import torch

import cce
from cce.testing import EmbeddingContract
from helpers import slow


class TestDeepHash(EmbeddingContract):
    table_class = cce.DeepHashEmbedding
    has_sparse = False
    fits_tables = False
    budget_excess = 0.01  # the paper rounds its width
    has_matrix_products = True

    def reference(self, table, x):
        vector = [slow.unit(x, seeds) for seeds in table.hash.seeds]
        *hidden, last = table.layers
        for layer in hidden:
            sums = [sum(float(w) * v for w, v in zip(row, vector, strict=True)) for row in layer]
            vector = [s * math.tanh(math.log1p(math.exp(s))) for s in sums]
        return torch.stack([sum(w * v for w, v in zip(row, vector, strict=True)) for row in last])


def test_the_paper_s_example():
    table = cce.create_embedding("dhe", 1_000_000, 64, num_params=64_000)
    assert table.hash.num_hashes == 136
    assert table.num_params == 64_192


@pytest.mark.slow
def test_small_budgets_are_never_exceeded_by_much():
    for budget in range(20, 400):
        table = cce.create_embedding("dhe", 1000, 16, num_params=budget)
        assert table.num_params <= 1.01 * budget


def test_cannot_start_from_a_trained_table():
    with pytest.raises(ValueError, match="its network must be trained"):
        cce.DeepHashEmbedding.from_table(torch.randn(100, 8), num_params=200)
