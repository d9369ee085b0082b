"""CCE as a run trains it: pointers and a codebook without helpers, fitted to other tables where ids occur often."""

import pytest
import torch

import cce
from cce.testing import LinearContract


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class TestContract(LinearContract):
    table_class = cce.CCEEmbedding

    def reference(self, table, x):
        pointers = table.assignments.pointers.to_tensor()[x].tolist()
        return torch.cat([table.codebook[column * table.num_rows + row] for column, row in enumerate(pointers)])


class TestSharedTail(LinearContract, variant=True):
    table_class = cce.CCEEmbedding
    options = {"num_learned": 25, "share_tail": True}  # noqa: RUF012

    def reference(self, table, x):
        pointers = table.assignments.pointers.to_tensor()[x].tolist() if x < 25 else [0] * table.num_columns
        return torch.cat([table.codebook[column * table.num_rows + row] for column, row in enumerate(pointers)])

    test_any_sizes_and_budgets = None  # vocabularies below 25
    test_fits_a_trained_table_or_says_why_not = None  # all ids but 25 share a vector
    test_starts_with_the_common_mean_and_variance = None  # of as many vectors


def test_after_a_clustering_the_tail_has_the_rows_nearest_to_what_it_had():
    options = {"num_rows": 8, "num_columns": 2, "num_learned": 300}
    table = cce.CCEEmbedding(1000, 4, share_tail=True, generator=generator(3), **options)
    before = table(torch.arange(1000)).detach()
    assert len(before[300:].unique(dim=0)) == 1
    table.cluster(generator=generator())
    after = table(torch.arange(1000)).detach()
    assert len(after[300:].unique(dim=0)) == 1
    for column, piece in enumerate(before[300].chunk(2)):
        centroids = table.codebook.detach().view(2, 8, 2)[column]
        assert int((centroids - piece).square().sum(1).argmin()) == 0
    assert (after[:300] - before[:300]).square().mean() < before[:300].var() / 4  # pointers went along with the rows


def seen_by_rank(num_ids: int) -> torch.Tensor:
    counts = 1 + 2000 // torch.arange(1, num_ids + 1)
    counts[0] = 0  # unseen
    return counts


def test_a_table_is_nearer_where_ids_occur_often_if_it_is_told():
    weight, counts = torch.randn(400, 8, generator=torch.Generator().manual_seed(0)), seen_by_rank(400)
    errors = []
    for fit in ("fit_to", "fit_where_it_counts"):
        table = cce.CCEEmbedding(400, 8, num_rows=16, num_columns=4, generator=generator(1))
        told = (weight.__getitem__, counts) if fit == "fit_where_it_counts" else (weight,)
        getattr(table, fit)(*told, generator=generator(2))
        error = (table.to_dense() - weight).square().sum(1)
        errors.append((error * counts).sum() / counts.sum())
    assert errors[1] < 0.8 * errors[0]


def test_ids_that_were_never_seen_or_have_no_pointers_start_where_rare_ids_are():
    weight, counts = torch.randn(400, 8, generator=torch.Generator().manual_seed(0)), seen_by_rank(400)
    weight[300:] += 3
    options = {"num_rows": 60, "num_columns": 4, "num_learned": 300, "share_tail": True}
    table = cce.CCEEmbedding(400, 8, **options, generator=generator(1))
    table.fit_where_it_counts(weight.__getitem__, counts, generator=generator(2))
    rare = (weight[300:] * counts[300:, None]).sum(0) / counts[300:].sum()
    found = table.to_dense()
    torch.testing.assert_close(found[300:], found[300].expand(100, 8))
    torch.testing.assert_close(found[0], found[300])
    assert (found[0] - rare).norm() < 0.5 * (weight[0] - rare).norm()


def test_counts_of_a_start_must_be_those_of_all_ids():
    table = cce.CCEEmbedding(400, 8, num_rows=16)
    with pytest.raises(ValueError, match=r"counts must have shape \(400,\), one count per id, got \(10,\)"):
        table.fit_where_it_counts(torch.zeros(400, 8).__getitem__, torch.ones(10))


def test_a_budget_gives_no_more_rows_than_max_rows():
    for budget, rows in ((1600, 100), (16_000, 256)):
        table = cce.create_embedding("cce", 5000, 16, num_params=budget, max_rows=256)
        assert (table.num_rows, table.num_params) == (rows, rows * 16)
    by_bytes = cce.create_embedding("cce", 5000, 16, nbytes=150_000, max_rows=256)
    assert (by_bytes.num_rows, by_bytes.assignments.num_learned) == (256, 5000)
    with pytest.raises(ValueError, match="num_rows must be at most max_rows=256, got 257"):
        cce.CCEEmbedding(5000, 16, num_rows=257, max_rows=256)
