"""A narrow table and a projection; started from a table, what Eckart and Young leave over, no more."""

import pytest
import torch

import cce
from cce.embeddings.low_rank import low_rank_factors
from cce.testing import EmbeddingContract


class TestLowRank(EmbeddingContract):
    table_class = cce.embeddings.LowRankEmbedding
    fills_budget = False  # what a whole rank does not need is not used
    has_matrix_products = True

    def reference(self, table, x):
        return sum(value * row for value, row in zip(table.narrow[x], table.projection, strict=True))


@pytest.mark.parametrize(("num_params", "rank"), [(1_008, 1), (2_015, 1), (2_016, 2), (7_999, 7)])
def test_a_budget_buys_whole_ranks(num_params, rank):
    table = cce.create_embedding("low-rank", 1000, 8, num_params=num_params, seed=0)
    assert (table.narrow.shape, table.projection.shape) == ((1000, rank), (rank, 8))
    assert table.num_params == rank * 1008 <= num_params


def test_a_table_of_that_rank_is_started_from_exactly():
    weight = random_table(60, 2) @ random_table(2, 8)
    table = cce.embeddings.LowRankEmbedding(60, 8, rank=2).double()
    table.fit_to(weight)
    torch.testing.assert_close(table.to_dense(), weight)


def random_table(num_rows, dim, *, dtype=torch.float64):
    return torch.randn(num_rows, dim, dtype=dtype, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("shape", [(40, 8), (8, 8), (5, 8)])
@pytest.mark.parametrize("rank", [1, 3, 8])
def test_the_error_is_that_of_the_truncated_singular_values(shape, rank):
    weight = random_table(*shape)
    narrow, projection = low_rank_factors(weight, rank)
    left_over = torch.linalg.svdvals(weight)[rank:].square().sum().sqrt()
    assert (narrow.shape, projection.shape) == ((shape[0], rank), (rank, 8))
    assert torch.allclose(torch.linalg.norm(weight - narrow @ projection), left_over, atol=1e-10)


def test_the_projection_has_orthonormal_rows_strongest_first():
    narrow, projection = low_rank_factors(random_table(100, 8), 4)
    strengths = narrow.square().sum(0)
    assert torch.allclose(projection @ projection.T, torch.eye(4, dtype=torch.float64), atol=1e-12)
    assert (strengths[:-1] >= strengths[1:]).all()
