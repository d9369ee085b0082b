import copy

import pytest
import torch

import cce
from cce.testing import EmbeddingContract


class TestColliding(EmbeddingContract):
    table_class = cce.embeddings.CollidingEmbedding
    fills_budget = False  # the thin table grows by whole columns of the vocabulary
    has_matrix_products = True  # until it is clustered

    def reference(self, table, x):
        return sum(n * row for n, row in zip(table.codebook[x], table.projection, strict=True))


class TestCollided(EmbeddingContract):
    table_class = cce.embeddings.CollidingEmbedding
    fills_budget = False
    has_matrix_products = True  # its centroids went through the projection

    def make(self, *args, **kwargs):
        table = super().make(*args, **kwargs)
        if table.method == "collide":
            table.cluster(generator=torch.Generator().manual_seed(0))
        return table

    def reference(self, table, x):
        return table.codebook[int(table.assignments.pointers.to_tensor()[x, 0])]

    test_starts_with_the_common_mean_and_variance = None  # clustering narrows the distribution
    test_any_sizes_and_budgets = None
    test_all_float_types = None  # the pointers are learned in the type
    test_a_table_made_on_the_meta_device_takes_over_a_state = None  # it cannot be clustered there
    test_the_constructor_takes_a_device_and_a_dtype = None
    test_reset_parameters_draws_what_the_constructor_does = None
    test_its_footprint_is_what_it_holds = None  # that of the table before it is clustered
    test_a_budget_in_bytes_is_met_from_below = None  # before it is clustered: it has no pointers then


def planted_table(num_ids=400, num_clusters=10):
    table = cce.embeddings.CollidingEmbedding(num_ids, 8, num_rows=num_clusters, thin_dim=2)
    cluster = torch.arange(num_ids) % num_clusters
    with torch.no_grad():
        centres = torch.randn(num_clusters, 2, generator=torch.Generator().manual_seed(0))
        table.codebook.copy_(centres[cluster] + 1e-3 * torch.randn(num_ids, 2))
    return table, cluster


def test_ids_with_near_thin_rows_collide():
    table, cluster = planted_table()
    table.settings = cce.clustering.ClusterSettings(init="k-means++")
    before = table.to_dense()
    event = table.cluster(generator=torch.Generator().manual_seed(0))
    rows = table.assignments.pointers.to_tensor()[:, 0].long()
    assert all(len(rows[cluster == c].unique()) == 1 for c in range(10))
    assert len(rows.unique()) == 10
    torch.testing.assert_close(table.to_dense(), before, atol=0.02, rtol=0)
    assert list(event.replaced.values()) == [table.codebook, None]
    assert table.num_params == 10 * 8


def test_both_phases_meet_the_budget():
    table = cce.create_embedding("collide", 1000, 16, num_params=4000)
    assert table.num_params <= 4000
    table.cluster()
    assert 3900 <= table.num_params <= 4000


def test_a_clustered_state_loads_into_a_fresh_table():
    table, _ = planted_table()
    fresh = copy.deepcopy(table)
    table.cluster()
    fresh.load_state_dict(table.state_dict())
    assert torch.equal(fresh.to_dense(), table.to_dense())


def test_starts_from_a_trained_table_of_low_rank():
    weight = torch.randn(50, 2, dtype=torch.float64) @ torch.randn(2, 8, dtype=torch.float64)
    table = cce.embeddings.CollidingEmbedding.from_table(weight, num_params=2 * 58)
    torch.testing.assert_close(table.to_dense(), weight)
    table.cluster()
    with pytest.raises(ValueError, match="only before it is clustered"):
        table.fit_to(weight)
