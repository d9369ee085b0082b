"""The variants of the paper's CCE: each against its formula, and what its clustering does otherwise."""

import copy

import pytest
import torch

import cce
from cce.embeddings import METHODS
from cce.testing import LinearContract
from cce_lab.variants import (
    VARIANTS,
    CircularEmbedding,
    FirstRowsEmbedding,
    HelpersEmbedding,
    ResidualHelpersEmbedding,
    SettlingEmbedding,
    SummedEmbedding,
)
from helpers import slow
from helpers.draws import seeded
from helpers.variants import registered  # noqa: F401


def vector(table, x):
    """The formula, term by term."""
    pieces = []
    for column in range(table.num_columns):
        tables = table.codebook.view(table.codebook_shape)[column]
        piece = tables[0, int(table.assignments.pointers.to_tensor()[x, column])]
        for helper in range(table.num_helpers):
            seeds = table.helper.seeds[column * table.num_helpers + helper]
            piece = piece + tables[1 + helper, slow.row(x, seeds, table.num_rows)]
        pieces.append(piece)
    return sum(pieces) if table.width == table.embedding_dim else torch.cat(pieces)


class TestHelpers(LinearContract):
    """Once for all variants: what a class must do besides, `ClusteredEmbedding` is tested for."""

    table_class = HelpersEmbedding

    def reference(self, table, x):
        return vector(table, x)


@pytest.mark.parametrize("kind", VARIANTS)
def test_every_variant_is_a_method_that_computes_its_formula_before_and_after_a_clustering(kind):
    assert METHODS[kind.method] is kind
    table = cce.create_embedding(kind.method, 120, 8, compression=4, seed=0).double()
    for _ in range(2):
        expected = torch.stack([vector(table, x) for x in range(120)])
        torch.testing.assert_close(table(torch.arange(120)), expected, rtol=1e-12, atol=1e-12)
        other = cce.create_embedding(kind.method, 120, 8, compression=4, seed=1).double()
        other.load_state_dict(table.state_dict())
        assert torch.equal(other.to_dense(), table.to_dense())
        if table.can_cluster:
            table.cluster(generator=seeded())
        with torch.no_grad():
            table.codebook.add_(0.1 * torch.randn(table.codebook.shape, generator=seeded(1)))


@pytest.mark.parametrize(
    ("kind", "option", "message"),
    [
        (HelpersEmbedding, {"num_helpers": -1}, r"num_helpers must lie in \[0, 2\*\*31\), got -1"),
        (SettlingEmbedding, {"settle_after": 0}, r"settle_after must lie in \[1, 2\*\*31\), got 0"),
        (FirstRowsEmbedding, {"first_factor": 0}, r"first_factor must lie in \[1, 2\*\*31\), got 0"),
    ],
)
def test_wrong_options_are_named(kind, option, message):
    with pytest.raises(ValueError, match=message):
        kind(100, 8, num_rows=4, **option)
    with pytest.raises(TypeError, match=f"method '{kind.method}' has no option 'colour'; its options are"):
        cce.create_embedding(kind.method, 100, 8, compression=4, colour="blue")


def test_a_residual_start_changes_the_table_less_than_a_zero_start():
    moved = {}
    for kind in (cce.embeddings.ClusteredEmbedding, ResidualHelpersEmbedding):
        table = kind(300, 8, num_rows=40, generator=seeded())
        before = table.to_dense()
        table.cluster(generator=seeded(1))
        moved[kind] = (table.to_dense() - before).norm()
    assert moved[ResidualHelpersEmbedding] < 0.97 * moved[cce.embeddings.ClusteredEmbedding]


def test_a_residual_start_is_the_mean_of_what_is_left():
    g = torch.Generator().manual_seed(0)
    table = ResidualHelpersEmbedding(300, 8, num_rows=10, num_columns=4, generator=g)
    old = table.to_dense()
    table.cluster(generator=torch.Generator().manual_seed(1))
    tables = table.codebook.detach().view(4, 2, 10, 2)
    rows = table.helper(torch.arange(300))
    left = old.view(300, 4, 2)[:, 2] - tables[2, 0][table.assignments.pointers.to_tensor()[:, 2].long()]
    for row in range(10):
        if (rows[:, 2] == row).any():
            torch.testing.assert_close(tables[2, 1, row], left[rows[:, 2] == row].mean(0))


def test_more_rows_before_the_first_clustering_than_after():
    table = FirstRowsEmbedding(500, 8, num_rows=10, num_columns=4, first_factor=6)
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


def test_circular_columns_are_clustered_by_the_others():
    """If all columns but one are constant, the others are grouped by its pieces."""
    table = CircularEmbedding(900, 8, num_rows=5, num_columns=4, generator=seeded())
    groups = torch.randint(0, 5, (900,), generator=seeded(1))
    with torch.no_grad():
        table.codebook.zero_()
        table.tables[1, 0] = torch.randn(5, 2, generator=seeded(2))
        table.assignments.write(torch.arange(900), groups.view(-1, 1).repeat(1, 4))
    table.settings = cce.clustering.ClusterSettings(init="k-means++")
    table.cluster(generator=seeded(3))
    found = table.assignments.pointers.to_tensor()[:, 0].long()
    assert torch.unique(torch.stack([found, groups]), dim=1).shape[1] == 5


def test_sums_are_clustered_as_residuals():
    weight = torch.randn(400, 8, generator=seeded())
    table = SummedEmbedding(400, 8, num_rows=40, num_columns=2, generator=seeded(1))
    table.fit_to(weight, generator=seeded(2))
    residual = cce.embeddings.ProductQuantizedEmbedding(
        400, 8, num_rows=40, num_columns=2, residual=True, generator=seeded(1)
    )
    residual.fit_to(weight, generator=seeded(2))
    errors = [(each.to_dense() - weight).square().mean() for each in (table, residual)]
    assert errors[0] < 1.1 * errors[1] < 1.1 * weight.square().mean()


def settling(after):
    """A table whose ids have 20 different pieces in each column, with room for 10 before it settles and 20 after."""
    settings = cce.clustering.ClusterSettings(init="k-means++")
    return SettlingEmbedding(600, 8, num_rows=10, num_columns=4, settle_after=after, settings=settings)


def test_a_settled_table_has_no_helpers_and_gives_their_rows_to_the_clusters():
    table = settling(1)
    pieces = torch.randn(4, 20, 2, generator=seeded())
    groups = torch.randint(0, 20, (600, 4), generator=seeded(1))
    weight, memory = torch.cat([pieces[i][groups[:, i]] for i in range(4)], dim=1), table.codebook.data_ptr()
    table.fit_to(weight, generator=seeded(1))  # counts as a clustering
    torch.testing.assert_close(table.to_dense(), weight)  # 20 pieces in 20 rows: nothing is lost
    assert (table.num_rows, table.helper.num_hashes, table.slots) == (20, 0, (4, 1))
    assert (table.num_params, table.codebook.data_ptr()) == (10 * 16, memory)
    assert (table.num_helpers, table.can_cluster) == (0, False)
    with pytest.raises(ValueError, match=r"settle_after=1 clusterings were made: the table has settled\."):
        table.cluster()


def test_a_table_settles_at_the_clustering_that_it_was_told_and_is_saved_as_it_is():
    table = settling(3)
    fresh = copy.deepcopy(table)
    for rows, helpers in ((10, 4), (10, 4), (20, 0)):
        fresh.load_state_dict(copy.deepcopy(table.state_dict()))  # the number of clusterings travels along
        for each in (table, fresh):
            each.cluster(generator=torch.Generator().manual_seed(1))
            assert (each.num_rows, each.helper.num_hashes) == (rows, helpers)
        assert torch.equal(fresh.to_dense(), table.to_dense())
    later = settling(3)
    later.load_state_dict(table.state_dict())
    assert torch.equal(later(torch.arange(600)), table.to_dense())


def test_training_goes_on_through_the_clustering_at_which_a_table_settles():
    table = settling(2)
    optimizer = torch.optim.Adam(table.parameters(), lr=0.01)
    schedule = cce.reclustering.ClusterSchedule(table, optimizer, every=2)
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
