import copy

import pytest
import torch

import cce
from cce.testing import LinearContract
from helpers import slow


class TestBeforeClustering(LinearContract):
    table_class = cce.ClusteredEmbedding

    def reference(self, table, x):
        rows, pieces = table.num_rows, []
        for column in range(table.num_columns):
            base = column * (1 + table.num_helpers) * rows
            piece = table.codebook[base + int(table.assignments.pointers.to_tensor()[x, column])]
            for helper in range(table.num_helpers):
                seeds = table.helper.seeds[column * table.num_helpers + helper]
                piece = piece + table.codebook[base + (1 + helper) * rows + slow.row(x, seeds, rows)]
            pieces.append(piece)
        return sum(pieces) if table.combine == "sum" else torch.cat(pieces)

    def test_the_first_pointers_are_those_of_a_hash_function(self):
        table = self.make()
        for x in (0, 17, 999):
            expected = [slow.row(x, seeds, table.num_rows) for seeds in table.assignments.hash.seeds]
            assert table.assignments.pointers.to_tensor()[x].tolist() == expected


class TestAfterClustering(TestBeforeClustering):
    options = {"preset": "paper"}  # noqa: RUF012  # the tuned one is what TestBeforeClustering has

    def make(self, *args, **kwargs):
        table = super().make(*args, **kwargs)
        if table.method == "cce":
            table.cluster(generator=torch.Generator().manual_seed(0))
            with torch.no_grad():  # train on: helpers at zero would hide mistakes
                noise = torch.randn(table.codebook.shape, generator=torch.Generator().manual_seed(1), device="cpu")
                table.codebook.add_(0.1 * noise.to(table.codebook))
        return table

    test_starts_with_the_common_mean_and_variance = None  # it is no start any more
    test_the_first_pointers_are_those_of_a_hash_function = None
    test_all_float_types = None  # the pointers are learned in the type
    test_a_table_made_on_the_meta_device_takes_over_a_state = None  # it cannot be clustered there
    test_any_sizes_and_budgets = None


class TestNoHelper(TestBeforeClustering):
    options = {"num_helpers": 0}  # noqa: RUF012


class TestTwoHelpers(TestBeforeClustering):
    options = {"num_helpers": 2, "num_columns": 2}  # noqa: RUF012
    test_any_embedding_dim_works_by_default = None
    test_any_sizes_and_budgets = None


class TestSum(TestBeforeClustering):
    options = {"combine": "sum", "num_columns": 2}  # noqa: RUF012


class TestSharedTail(LinearContract):
    table_class = cce.ClusteredEmbedding
    options = {"num_learned": 25, "share_tail": True, "num_helpers": 0}  # noqa: RUF012

    def reference(self, table, x):
        pointers = table.assignments.pointers.to_tensor()[x].tolist() if x < 25 else [0] * table.num_columns
        return torch.cat([table.codebook[column * table.num_rows + row] for column, row in enumerate(pointers)])

    test_any_sizes_and_budgets = None  # vocabularies below 25
    test_fits_a_trained_table_or_says_why_not = None  # all ids but 25 share a vector
    test_starts_with_the_common_mean_and_variance = None  # of as many vectors


def test_after_a_clustering_the_tail_has_the_rows_nearest_to_what_it_had():
    options = {"num_rows": 8, "num_columns": 2, "num_helpers": 0, "num_learned": 300}
    table = cce.ClusteredEmbedding(1000, 4, share_tail=True, generator=torch.Generator().manual_seed(3), **options)
    before = table(torch.arange(1000)).detach()
    assert len(before[300:].unique(dim=0)) == 1
    table.cluster(generator=torch.Generator().manual_seed(0))
    after = table(torch.arange(1000)).detach()
    assert len(after[300:].unique(dim=0)) == 1
    for column, piece in enumerate(before[300].chunk(2)):
        centroids = table.codebook.detach().view(2, 8, 2)[column]
        assert int((centroids - piece).square().sum(1).argmin()) == 0
    assert (after[:300] - before[:300]).square().mean() < before[:300].var() / 4  # pointers went along with the rows


def test_a_shared_tail_does_not_go_with_sums():
    with pytest.raises(ValueError, match=r"share_tail must be False with combine='sum', whose rows add up, got True\."):
        cce.ClusteredEmbedding(100, 4, num_rows=8, combine="sum", share_tail=True)


class TestLearnedForFrequentIdsOnly(LinearContract):
    table_class = cce.ClusteredEmbedding
    options = {"num_learned": 25}  # noqa: RUF012

    def reference(self, table, x):
        rows, pieces = table.num_rows, []
        for column in range(table.num_columns):
            hashed = slow.row(x, table.assignments.hash.seeds[column], rows)
            main = int(table.assignments.pointers.to_tensor()[x, column]) if x < 25 else hashed
            helper = slow.row(x, table.helper.seeds[column], rows)
            pieces.append(table.codebook[2 * column * rows + main] + table.codebook[(2 * column + 1) * rows + helper])
        return torch.cat(pieces)

    test_any_sizes_and_budgets = None  # vocabularies below 25
    test_fits_a_trained_table_or_says_why_not = None  # all ids but 25 keep hashed rows, which are others' centroids
    test_the_first_pointers_are_those_of_a_hash_function = None


def trained(num_ids=3000, num_groups=20, dim=8, *, noise=0.0, **options):
    """A table whose dense form has planted groups: helpers zero, rows spread out, every id pointed by hand."""
    g = torch.Generator().manual_seed(0)
    options.setdefault("settings", cce.ClusterSettings(init="k-means++"))
    table = cce.ClusteredEmbedding(num_ids, dim, num_rows=num_groups, num_columns=4, generator=g, **options)
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
        table, _ = trained(noise=0.5, settings=cce.ClusterSettings(block_size=block_size))
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
    assert event.moved > 0
    assert event.num_ids == 3000
    assert event.total_seconds == sum(event.seconds.values()) > 0
    assert list(event.seconds) == ["sample", "fit", "assign", "helpers", "measure", "stage", "swap"]


@pytest.mark.slow
@pytest.mark.parametrize("num_helpers", [1, 2])
@pytest.mark.parametrize("combine", ["concat", "sum"])
def test_a_residual_start_changes_the_table_less_than_a_zero_start(combine, num_helpers):
    moved = {}
    for helper_start in ("zero", "residual"):
        g = torch.Generator().manual_seed(0)
        table = cce.ClusteredEmbedding(
            300, 8, num_rows=40, num_helpers=num_helpers, combine=combine, helper_start=helper_start, generator=g
        )
        before = table.to_dense()
        table.cluster(generator=torch.Generator().manual_seed(1))
        moved[helper_start] = (table.to_dense() - before).norm()
    assert moved["residual"] < 0.97 * moved["zero"]


def test_a_residual_start_is_the_mean_of_what_is_left():
    g = torch.Generator().manual_seed(0)
    table = cce.ClusteredEmbedding(300, 8, num_rows=10, num_columns=4, helper_start="residual", generator=g)
    old = table.to_dense()
    table.cluster(generator=torch.Generator().manual_seed(1))
    tables = table.codebook.detach().view(4, 2, 10, 2)
    rows = table.helper(torch.arange(300))
    left = old.view(300, 4, 2)[:, 2] - tables[2, 0][table.assignments.pointers.to_tensor()[:, 2].long()]
    for row in range(10):
        if (rows[:, 2] == row).any():
            torch.testing.assert_close(tables[2, 1, row], left[rows[:, 2] == row].mean(0))


def test_ids_beyond_num_learned_stay_hashed():
    table, _ = trained(noise=0.5)
    partial = cce.ClusteredEmbedding(3000, 8, num_rows=20, num_learned=100)
    ids = torch.arange(3000)
    before = partial.assignments(ids)
    partial.cluster()
    after = partial.assignments(ids)
    assert torch.equal(after[100:], before[100:])
    assert not torch.equal(after[:100], before[:100])
    assert partial.pointer_nbytes < table.pointer_nbytes / 10


COUNTS = torch.tensor([0, 90, 41, 7, 5, *[2] * 295])


@pytest.mark.parametrize(("preset", "num_learned"), [("tuned", 5), ("paper", 300)])
def test_counts_say_which_ids_learn(preset, num_learned):
    table = cce.ClusteredEmbedding(300, 8, num_rows=3, preset=preset, counts=COUNTS)
    assert table.assignments.num_learned == num_learned
    for limit in ({"num_params": 96}, {"nbytes": 9_000}):
        made = cce.create_embedding("cce", 300, 8, preset=preset, counts=COUNTS, **limit)
        planned = cce.plan_tables({"a": 300}, 8, options={"cce": {"preset": preset}}, counts={"a": COUNTS}, **limit)
        assert made.assignments.num_learned == num_learned
        assert planned.tables[0].nbytes == made.nbytes


def test_counts_that_do_not_go_with_a_table_are_rejected():
    with pytest.raises(ValueError, match=r"counts must have shape \(300,\), got \(299,\)\."):
        cce.ClusteredEmbedding(300, 8, num_rows=3, counts=COUNTS[1:])
    with pytest.raises(ValueError, match="give num_learned or counts, got num_learned=7 and counts"):
        cce.create_embedding("cce", 300, 8, num_params=96, counts=COUNTS, num_learned=7)
    with pytest.raises(TypeError, match="counts must be a Tensor, got"):
        cce.create_embedding("cce", 300, 8, num_params=96, counts=[1, 2])


def test_without_learned_ids_there_is_nothing_to_cluster():
    with pytest.raises(ValueError, match="num_learned must be at least 1 to cluster, got 0"):
        cce.ClusteredEmbedding(30, 8, num_rows=2, num_learned=0).cluster()


@pytest.mark.slow
def test_circular_columns_are_clustered_by_the_others():
    """If columns 2 and 3 are constant, columns 0 and 1 are grouped by each other's pieces."""
    table, groups = trained(combine="circular")
    with torch.no_grad():
        table.codebook.view(4, 2, 20, 2)[2:] = 0
    table.cluster(generator=torch.Generator().manual_seed(1))
    found = table.assignments.pointers.to_tensor()[:, 0].long()
    assert torch.unique(torch.stack([found, groups[:, 1]]), dim=1).shape[1] == 20


def test_more_rows_before_the_first_clustering_than_after():
    table = cce.ClusteredEmbedding(500, 8, num_rows=10, num_columns=4, first_rows=60)
    assert table.num_params == 60 * 16
    twin = copy.deepcopy(table)
    parameter = table.codebook
    table.cluster()
    assert table.num_params == 10 * 16
    assert table.codebook is parameter  # the same object, of another shape
    table(torch.arange(500)).sum().backward()
    assert table.codebook.grad.shape == (80, 2)
    assert int(table.assignments.pointers.to_tensor().max()) < 10
    twin.load_state_dict(table.state_dict())
    assert torch.equal(twin.to_dense(), table.to_dense())


def settling(after, **options):
    """A table whose ids have 20 different pieces in each column, with room for 10 before it settles and 20 after."""
    table, _ = trained(num_ids=600, settle_after=after, **options)
    small = cce.ClusteredEmbedding(
        *(600, 8), num_rows=10, num_columns=4, settle_after=after, settings=cce.ClusterSettings(init="k-means++")
    )
    return table, small


def test_a_settled_table_has_no_helpers_and_gives_their_rows_to_the_clusters():
    target, table = settling(1)
    weight, memory = target.to_dense(), table.codebook.data_ptr()
    table.fit_to(weight, generator=torch.Generator().manual_seed(1))  # counts as a clustering
    torch.testing.assert_close(table.to_dense(), weight)  # 20 pieces in 20 rows: nothing is lost
    assert (table.num_rows, table.helper.num_hashes, table.codebook_layout().slots) == (20, 0, (4, 1))
    assert (table.num_params, table.codebook.data_ptr()) == (10 * 16, memory)
    assert (table.num_helpers, table.can_cluster) == (0, False)
    with pytest.raises(ValueError, match=r"settle_after=1 clusterings were made: the table has settled\."):
        table.cluster()


def test_a_table_settles_at_the_clustering_that_it_was_told_and_is_saved_as_it_is():
    _, table = settling(3)
    fresh = copy.deepcopy(table)
    for rows, helpers in ((10, 4), (10, 4), (20, 0)):
        fresh.load_state_dict(copy.deepcopy(table.state_dict()))  # the number of clusterings travels along
        for each in (table, fresh):
            each.cluster(generator=torch.Generator().manual_seed(1))
            assert (each.num_rows, each.helper.num_hashes) == (rows, helpers)
        assert torch.equal(fresh.to_dense(), table.to_dense())
    later = settling(3)[1]
    later.load_state_dict(table.state_dict())
    assert torch.equal(later(torch.arange(600)), table.to_dense())


def test_training_goes_on_through_the_clustering_at_which_a_table_settles():
    _, table = settling(2)
    optimizer = torch.optim.Adam(table.parameters(), lr=0.01)
    schedule = cce.ClusterSchedule(table, optimizer, every=2)
    target = torch.randn(600, 8, generator=torch.Generator().manual_seed(0))
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = (table(torch.arange(600)) - target).square().mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    assert table.num_rows == 20
    assert losses[-1] < losses[5] < losses[0]
    assert optimizer.state[table.codebook]["exp_avg"].shape == table.codebook.shape


@pytest.mark.slow
def test_tables_seeded_by_product_quantisation():
    weight = torch.randn(2000, 8, generator=torch.Generator().manual_seed(0))
    seeded = cce.ClusteredEmbedding.from_table(weight, num_params=16 * 50, generator=torch.Generator().manual_seed(1))
    plain = cce.ProductQuantizedEmbedding.from_table(
        weight, num_params=8 * 50, generator=torch.Generator().manual_seed(1)
    )
    error, expected = ((t.to_dense() - weight).square().mean() for t in (seeded, plain))
    assert error < 1.05 * expected


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def seen_by_rank(num_ids: int) -> torch.Tensor:
    counts = 1 + 2000 // torch.arange(1, num_ids + 1)
    counts[0] = 0  # unseen
    return counts


def test_a_table_is_nearer_where_ids_occur_often_if_it_is_told():
    weight, counts = torch.randn(400, 8, generator=torch.Generator().manual_seed(0)), seen_by_rank(400)
    errors = []
    for fit in ("fit_to", "fit_where_it_counts"):
        table = cce.ClusteredEmbedding(400, 8, num_rows=16, num_columns=4, num_helpers=0, generator=generator(1))
        told = (weight.__getitem__, counts) if fit == "fit_where_it_counts" else (weight,)
        getattr(table, fit)(*told, generator=generator(2))
        error = (table.to_dense() - weight).square().sum(1)
        errors.append((error * counts).sum() / counts.sum())
    assert errors[1] < 0.8 * errors[0]


def test_ids_that_were_never_seen_or_have_no_pointers_start_where_rare_ids_are():
    weight, counts = torch.randn(400, 8, generator=torch.Generator().manual_seed(0)), seen_by_rank(400)
    weight[300:] += 3
    options = {"num_rows": 60, "num_columns": 4, "num_helpers": 0, "num_learned": 300, "share_tail": True}
    table = cce.ClusteredEmbedding(400, 8, **options, generator=generator(1))
    table.fit_where_it_counts(weight.__getitem__, counts, generator=generator(2))
    rare = (weight[300:] * counts[300:, None]).sum(0) / counts[300:].sum()
    found = table.to_dense()
    torch.testing.assert_close(found[300:], found[300].expand(100, 8))
    torch.testing.assert_close(found[0], found[300])
    assert (found[0] - rare).norm() < 0.5 * (weight[0] - rare).norm()


def test_counts_of_a_start_must_be_those_of_all_ids():
    table = cce.ClusteredEmbedding(400, 8, num_rows=16)
    with pytest.raises(ValueError, match=r"counts must have shape \(400,\), one count per id, got \(10,\)"):
        table.fit_where_it_counts(torch.zeros(400, 8).__getitem__, torch.ones(10))


@pytest.mark.slow
def test_seeds_make_clustering_repeatable_on_any_number_of_threads(num_threads):
    states = []
    for threads in (1, 2):
        num_threads(threads)
        table, _ = trained(noise=0.5)
        table.cluster(generator=torch.Generator().manual_seed(1))
        states.append(table.state_dict())
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())


def test_more_rows_than_ids_is_an_ordinary_input():
    table = cce.ClusteredEmbedding(5, 8, num_rows=50)
    before = table.to_dense()
    table.cluster()
    torch.testing.assert_close(table.to_dense(), before)
    assert torch.isfinite(table.codebook).all()


def test_duplicate_vectors_are_an_ordinary_input():
    table = cce.ClusteredEmbedding(500, 8, num_rows=20)
    with torch.no_grad():
        table.codebook.fill_(0.25)
    table.cluster()
    assert torch.equal(table.to_dense(), torch.full((500, 8), 0.5))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"combine": "product"}, "combine must be one of concat, circular, sum; got 'product'"),
        ({"helper_start": "one"}, "helper_start must be one of zero, residual; got 'one'"),
        ({"num_helpers": -1}, r"num_helpers must lie in \[0, 2\*\*31\), got -1"),
        ({"num_columns": 3}, "embedding_dim must be a multiple of num_columns, got embedding_dim=8 and num_columns=3"),
        ({"num_learned": 101}, r"num_learned must lie in \[0, 101\), got 101"),
        ({"settle_after": 0}, r"settle_after must lie in \[1, 2\*\*31\), got 0"),
        ({"settle_after": 1, "num_helpers": 0}, "num_helpers must be at least 1 with settle_after, got 0"),
        ({"settle_after": 1, "first_rows": 8}, "first_rows must differ from 8, the rows of a settled table, got 8"),
        ({"num_rows": 0}, r"num_rows must lie in \[1, 2\*\*31\), got 0"),
    ],
)
def test_wrong_arguments_are_named(option, message):
    with pytest.raises(ValueError, match=message):
        cce.ClusteredEmbedding(100, 8, **{"num_rows": 4, **option})
