"""The paper's algorithm: Algorithm 3, its start, and what a clustering must keep and find."""

import pytest
import torch

import cce
from cce.indexing.multiply_shift import draw_seeds
from cce.testing import LinearContract
from helpers import slow
from helpers.draws import seeded


class TestBeforeClustering(LinearContract):
    table_class = cce.embeddings.ClusteredEmbedding

    def reference(self, table, x):
        rows, pieces = table.num_rows, []
        for column in range(4 if table.embedding_dim % 4 == 0 else 5):
            main = int(table.assignments.pointers.to_tensor()[x, column])
            helper = slow.row(x, table.helper.seeds[column], rows)
            pieces.append(table.codebook[2 * column * rows + main] + table.codebook[(2 * column + 1) * rows + helper])
        return torch.cat(pieces)

    def test_the_first_pointers_are_those_of_a_hash_function(self):
        table, drawn = self.make(), draw_seeds(4, torch.Generator().manual_seed(0))
        for x in (0, 17, 999):
            expected = [slow.row(x, seeds, table.num_rows) for seeds in drawn]
            assert table.assignments.pointers.to_tensor()[x].tolist() == expected


class TestAfterClustering(TestBeforeClustering):
    def make(self, *args, **kwargs):
        table = super().make(*args, **kwargs)
        if isinstance(table, cce.embeddings.ClusteredEmbedding):
            table.cluster(generator=seeded())
            with torch.no_grad():  # train on: helpers at zero would hide mistakes
                noise = torch.randn(table.codebook.shape, generator=seeded(1), device="cpu")
                table.codebook.add_(0.1 * noise.to(table.codebook))
        return table

    test_starts_with_the_common_mean_and_variance = None  # it is no start any more
    test_the_first_pointers_are_those_of_a_hash_function = None
    test_all_float_types = None  # the pointers are learned in the type
    test_a_table_made_on_the_meta_device_takes_over_a_state = None  # it cannot be clustered there
    test_the_constructor_takes_a_device_and_a_dtype = None
    test_reset_parameters_draws_what_the_constructor_does = None
    test_any_sizes_and_budgets = None


def trained(num_ids=3000, num_groups=20, dim=8, *, noise=0.0, **options):
    """A table whose dense form has planted groups: helpers zero, rows spread out, every id pointed by hand."""
    g = torch.Generator().manual_seed(0)
    options.setdefault("settings", cce.clustering.ClusterSettings(init="k-means++"))
    table = cce.embeddings.ClusteredEmbedding(num_ids, dim, num_rows=num_groups, num_columns=4, generator=g, **options)
    groups = torch.randint(0, num_groups, (num_ids, 4), generator=g)
    with torch.no_grad():
        table.codebook.zero_()
        tables = table.codebook.view(4, 1 + table.num_helpers, num_groups, -1)
        tables[:, 0] = torch.randn(4, num_groups, tables.shape[-1], generator=g)
        if noise:
            tables[:, 1:] = noise * torch.randn(tables[:, 1:].shape, generator=g)
        table.assignments.write(torch.arange(num_ids), groups)
    return table, groups


def test_clustering_keeps_a_table_that_k_rows_can_express():
    table, _ = trained()
    before = table.to_dense()
    event = table.cluster(generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(table.to_dense(), before)
    assert max(event.inertias) < 1e-6


def test_clustering_recovers_planted_groups_from_under_the_helper_s_noise():
    table, groups = trained(noise=0.02)
    table.cluster(generator=torch.Generator().manual_seed(1))
    for column in range(4):
        found = table.assignments.pointers.to_tensor()[:, column].long()
        together = torch.zeros(20, 20).index_put_((found, groups[:, column]), torch.ones(3000), accumulate=True)
        assert together.max(0).values.sum() / 3000 > 0.9  # most ids of a group share a row


@pytest.mark.slow
def test_every_id_points_at_the_centroid_nearest_to_its_old_vector_whatever_the_block_size():
    results = []
    for block_size in (7, 1000, 10**6):
        table, _ = trained(noise=0.5, settings=cce.clustering.ClusterSettings(block_size=block_size))
        old = table.to_dense().view(-1, 4, 2)
        table.cluster(generator=torch.Generator().manual_seed(1))
        centroids = table.codebook.detach().view(4, 2, 20, 2)[:, 0]
        for column in range(4):
            distances = torch.cdist(old[:, column].double(), centroids[column].double())
            rows = table.assignments.pointers.to_tensor()[:, column].long()
            chosen = distances.gather(1, rows.unsqueeze(1)).squeeze(1)
            torch.testing.assert_close(chosen, distances.min(1).values, atol=1e-6, rtol=1e-6)
        results.append(table.state_dict())
    for other in results[1:]:
        assert all(torch.equal(tensor, results[0][name]) for name, tensor in other.items())


def test_after_clustering_helpers_are_zero_and_hashed_anew():
    table, _ = trained(noise=0.5)
    seeds = table.helper.seeds.clone()
    table.cluster()
    assert not table.codebook.view(4, 2, 20, 2)[:, 1].any()
    assert not torch.equal(table.helper.seeds, seeds)


@pytest.mark.slow
def test_clustering_works_in_place_and_keeps_the_number_of_parameters():
    table, _ = trained(noise=0.5)
    codebook, address, size = table.codebook, table.codebook.data_ptr(), table.num_params
    event = table.cluster()
    assert table.codebook is codebook
    assert table.codebook.data_ptr() == address
    assert table.num_params == size
    assert not event.replaced
    assert 0 < event.churn <= 1
    assert event.num_ids == 3000
    assert event.seconds > 0


@pytest.mark.slow
def test_tables_seeded_by_product_quantisation():
    weight = torch.randn(2000, 8, generator=torch.Generator().manual_seed(0))
    seeded = cce.embeddings.ClusteredEmbedding.from_table(
        weight, num_params=16 * 50, generator=torch.Generator().manual_seed(1)
    )
    plain = cce.embeddings.ProductQuantizedEmbedding.from_table(
        weight, num_params=8 * 50, generator=torch.Generator().manual_seed(1)
    )
    error, expected = ((t.to_dense() - weight).square().mean() for t in (seeded, plain))
    assert error < 1.05 * expected


# -- the start ---------------------------------------------------------------------------------------------------------


def test_by_default_both_tables_are_uniform_as_in_the_authors_code():
    table = cce.embeddings.ClusteredEmbedding(100, 16, num_rows=2000, generator=seeded())
    values = table.codebook.detach()
    assert values.abs().max() <= 1 / 4
    assert values.var().item() == pytest.approx(1 / 48, rel=0.02)
    assert values.sort(dim=0).values[[0, -1]].abs().min() > 0.24  # it reaches both ends
    assert table.start_variance == pytest.approx(2 / 48)


def test_or_both_are_standard_normal_as_in_the_paper_s_text():
    table = cce.embeddings.ClusteredEmbedding(3000, 16, num_rows=2000, init="paper", generator=seeded())
    assert table.codebook.var().item() == pytest.approx(1, rel=0.02)
    assert table.to_dense().var().item() == pytest.approx(2, rel=0.05)
    assert table.start_variance == 2


def test_or_vectors_start_as_those_of_other_methods():
    table = cce.embeddings.ClusteredEmbedding(3000, 16, num_rows=2000, start_scale="uniform", generator=seeded())
    assert table.to_dense().var().item() == pytest.approx(1 / 48, rel=0.05)
    zero = cce.embeddings.ClusteredEmbedding(3000, 16, num_rows=20, start_scale="zero")
    assert not zero.codebook.any()


def test_the_authors_start_is_drawn_again_within_its_bounds():
    table = cce.embeddings.ClusteredEmbedding(100, 16, num_rows=20, generator=seeded())
    first = table.codebook.detach().clone()
    table.reset_parameters(seeded(1))
    assert not torch.equal(table.codebook, first)
    assert table.codebook.abs().max() <= 1 / 4


def test_it_has_the_paper_s_columns_and_k_means():
    for dim, columns in ((16, 4), (8, 4), (12, 4), (10, 5), (7, 7), (1, 1)):
        assert cce.embeddings.ClusteredEmbedding(100, dim, num_rows=3).num_columns == columns
    settings = cce.embeddings.ClusteredEmbedding(100, 16, num_rows=3).settings
    assert (settings.max_iter, settings.points_per_row, settings.tol) == (50, 256, 0)
