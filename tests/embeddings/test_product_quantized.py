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
