import math

import pytest
import torch

import cce
from cce.testing import EmbeddingContract
from helpers import slow


def mish(value):
    return value * math.tanh(math.log1p(math.exp(value)))


class TestDeepHash(EmbeddingContract):
    table_class = cce.embeddings.DeepHashEmbedding
    has_sparse = False
    budget_excess = 0.01  # the paper rounds its width
    has_matrix_products = True

    def reference(self, table, x):
        vector = [slow.unit(x, seeds) for seeds in table.hash.seeds]
        *hidden, last = table.layers
        for layer in hidden:
            sums = [sum(float(w) * v for w, v in zip(row, vector, strict=True)) for row in layer]
            vector = [mish(s) for s in sums]
        return torch.stack([sum(w * v for w, v in zip(row, vector, strict=True)) for row in last])


def shapes_of(**options):
    table = cce.create_embedding("dhe", 1_000_000, 64, num_params=64_000, **options)
    return [tuple(layer.shape) for layer in table.layers]


def test_depth_and_hashes_share_the_budget():
    assert shapes_of(num_hidden=0) == [(223, 223), (64, 223)]  # w² + 64 w = 64,000
    assert shapes_of(num_hidden=4) == [(107, 107)] * 5 + [(64, 107)]
    assert shapes_of(num_hashes=1024) == [(54, 1024), (54, 54), (54, 54), (64, 54)]
    assert shapes_of(num_hashes=1024, num_hidden=0) == [(59, 1024), (64, 59)]  # 1,088 w: a line, no square


@pytest.mark.parametrize("options", [{"num_hidden": 0}, {"num_hidden": 5}, {"num_hashes": 3}])
def test_every_depth_starts_with_the_common_variance(options):
    table = cce.create_embedding("dhe", 5000, 16, num_params=3000, seed=0, **options)
    vectors = table.to_dense()
    assert float(vectors.square().mean()) == pytest.approx(1 / 48, rel=0.25)
    assert float(vectors.mean()) == pytest.approx(0, abs=0.02)


def test_the_paper_s_example():
    table = cce.create_embedding("dhe", 1_000_000, 64, num_params=64_000)
    assert table.hash.num_hashes == 136
    assert table.num_params == 64_192
