import pytest
import torch

import cce
from cce.testing import LinearContract


class TestProductQuantized(LinearContract):
    table_class = cce.embeddings.ProductQuantizedEmbedding

    def reference(self, table, x):
        pointers = table.assignments.pointers.to_tensor()[x].tolist()
        num_rows = table.assignments.num_rows
        return torch.cat([table.codebook[column * num_rows + row] for column, row in enumerate(pointers)])


class TestResidualQuantized(LinearContract, variant=True):
    table_class = cce.embeddings.ProductQuantizedEmbedding
    options = {"residual": True}  # noqa: RUF012

    def reference(self, table, x):
        pointers = table.assignments.pointers.to_tensor()[x].tolist()
        num_rows = table.assignments.num_rows
        return sum(table.codebook[level * num_rows + row] for level, row in enumerate(pointers))


def planted(num_ids=600, num_clusters=8, dim=8, seed=0):
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(num_clusters, dim, generator=g)
    return centres[torch.arange(num_ids) % num_clusters]


def test_a_table_of_few_distinct_rows_is_kept_exactly():
    weight = planted()
    table = cce.embeddings.ProductQuantizedEmbedding.from_table(
        weight,
        num_params=8 * 8,
        settings=cce.clustering.ClusterSettings(init="k-means++"),
        generator=torch.Generator().manual_seed(0),
    )
    assert table.num_params == 64
    torch.testing.assert_close(table.to_dense(), weight)


@pytest.mark.slow
def test_more_rows_come_nearer():
    weight = torch.randn(2000, 8, generator=torch.Generator().manual_seed(1))
    errors = [
        (cce.embeddings.ProductQuantizedEmbedding.from_table(weight, num_params=budget).to_dense() - weight)
        .square()
        .mean()
        for budget in (64, 512, 4096)
    ]
    assert errors[0] > 1.3 * errors[1] > 1.3 * 1.3 * errors[2]


@pytest.mark.slow
def test_every_id_points_at_its_nearest_row_whatever_the_block_size():
    weight = torch.randn(1003, 8, generator=torch.Generator().manual_seed(1))
    tables = [
        cce.embeddings.ProductQuantizedEmbedding.from_table(
            weight,
            num_params=400,
            settings=cce.clustering.ClusterSettings(block_size=block),
            generator=torch.Generator().manual_seed(2),
        )
        for block in (10, 1003, 10**6)
    ]
    pieces = weight.view(1003, 4, 2)
    codebooks = tables[0].codebook.detach().view(4, -1, 2)
    for column in range(4):
        distances = torch.cdist(pieces[:, column].double(), codebooks[column].double())
        rows = tables[0].assignments.pointers.to_tensor()[:, column].long()
        chosen = distances.gather(1, rows.unsqueeze(1)).squeeze(1)
        torch.testing.assert_close(chosen, distances.min(1).values, atol=1e-6, rtol=1e-6)
    for table in tables[1:]:
        assert torch.equal(table.assignments.pointers.words, tables[0].assignments.pointers.words)


def test_residual_quantisation_adds_up():
    weight = torch.randn(500, 6, generator=torch.Generator().manual_seed(1))
    one, three = (
        cce.embeddings.ProductQuantizedEmbedding.from_table(
            weight, num_params=6 * 20 * levels, residual=True, num_columns=levels
        )
        for levels in (1, 3)
    )
    assert (three.to_dense() - weight).norm() < 0.7 * (one.to_dense() - weight).norm()
