import torch

import cce
from cce.testing import EmbeddingContract


class TestMixedDimension(EmbeddingContract):
    table_class = cce.embeddings.MixedDimensionEmbedding
    has_matrix_products = True

    def reference(self, table, x):
        block = max(i for i, start in enumerate(table.starts) if start <= x)
        narrow = table.narrow[block][x - table.starts[block]]
        skipped = len(table.narrow) - len(table.projections)
        if block < skipped:
            return narrow
        return sum(n * row for n, row in zip(narrow, table.projections[block - skipped], strict=True))


def test_frequent_ids_are_wider():
    table = cce.create_embedding("mixed-dim", 10_000, 16, compression=8, seed=0)
    dims = [narrow.shape[1] for narrow in table.narrow]
    sizes = [len(narrow) for narrow in table.narrow]
    assert dims == [16, 8, 4, 2, 1]
    assert sizes[:4] == sorted(sizes[:4])
    assert sum(sizes) == 10_000


def test_a_lower_temperature_spreads_the_width_more_evenly():
    steep, even = (
        cce.create_embedding("mixed-dim", 10_000, 16, compression=8, temperature=temperature)
        for temperature in (1.0, 0.2)
    )
    assert len(steep.narrow[0]) > len(even.narrow[0])
    assert len(steep.narrow[-1]) > len(even.narrow[-1])


def test_a_table_of_low_rank_is_recovered():
    weight = torch.randn(60, 2, dtype=torch.float64) @ torch.randn(2, 8, dtype=torch.float64)
    table = cce.embeddings.MixedDimensionEmbedding(60, 8, block_sizes=(10, 50), block_dims=(8, 2)).double()
    table.fit_to(weight)
    torch.testing.assert_close(table.to_dense(), weight)
