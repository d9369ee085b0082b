import pytest
import torch

import cce
from cce.embeddings.tensor_train import dimension_factors
from cce.testing import EmbeddingContract
from helpers import slow


class TestTensorTrain(EmbeddingContract):
    table_class = cce.embeddings.TensorTrainEmbedding
    has_matrix_products = True
    num_variance_seeds = 60  # few cores, so one table's variance is a rough estimate

    def reference(self, table, x):
        (d1, d2, d3), (r1, r2) = table.factors, table.ranks
        i1, i2, i3 = slow.digits(x, table.radices)
        g1 = table.cores[0][i1].view(d1, r1)
        g2 = table.cores[1][i2].view(r1, d2, r2)
        g3 = table.cores[2][i3].view(r2, d3)
        return torch.stack(
            [
                sum(g1[a, p] * g2[p, b, q] * g3[q, c] for p in range(r1) for q in range(r2))
                for a in range(d1)
                for b in range(d2)
                for c in range(d3)
            ]
        )


@pytest.mark.parametrize(
    ("dim", "factors"), [(16, (2, 2, 4)), (64, (4, 4, 4)), (7, (1, 1, 7)), (1, (1, 1, 1)), (30, (2, 3, 5))]
)
def test_dimensions_are_split_into_three_factors(dim, factors):
    assert dimension_factors(dim) == factors


def test_a_tensor_train_is_recovered_from_its_dense_table():
    truth = cce.embeddings.TensorTrainEmbedding(
        90, 8, ranks=(3, 3), generator=torch.Generator().manual_seed(0)
    ).double()
    assert torch.tensor(truth.radices).prod() == 100  # ids that do not exist are padded
    full = torch.cat([truth.to_dense(), truth.embed(torch.arange(90, 100)).detach()])
    twin = cce.embeddings.TensorTrainEmbedding(100, 8, ranks=(3, 3)).double()
    twin.fit_to(full)
    torch.testing.assert_close(twin.to_dense(), full)


def test_higher_ranks_come_nearer_to_a_trained_table():
    weight = torch.randn(343, 8, dtype=torch.float64)
    errors = []
    for rank in (2, 5, 14):
        table = cce.embeddings.TensorTrainEmbedding(343, 8, ranks=(rank, rank)).double()
        table.fit_to(weight)
        errors.append((table.to_dense() - weight).norm())
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.5 * weight.norm() or errors[2] < errors[0]
