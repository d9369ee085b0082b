"""A clustering tells what it did, and tells the truth."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import cce
from cce.clustering import churn, column_entropies, count_dead
from cce.embeddings import METHODS
from cce.embeddings.clusterable import clean_interrupts
from cce_lab.variants import FirstRowsEmbedding
from helpers.draws import seeded


def clustered(kind=cce.embeddings.ClusteredEmbedding, num_ids=500, **options):
    """A table, what it pointed to, its vectors then, and the event of its first clustering."""
    table = kind(num_ids, 8, num_rows=10, num_columns=4, generator=seeded(), **options)
    before, vectors = table.assignments(torch.arange(num_ids)), table.to_dense()
    return table, before, vectors, table.cluster(generator=seeded(1))


def test_the_tables_that_learn_while_they_train_are_clusterable_and_no_others():
    assert {name for name, kind in METHODS.items() if issubclass(kind, cce.embeddings.Clusterable)} == {
        "cce-paper",
        "collide",
    }


def parametrized(table):
    parametrize.register_parametrization(table, "codebook", nn.Identity())


def pruned(table):
    prune.random_unstructured(table, "codebook", amount=0.1)


def normalized(table):
    parametrizations.weight_norm(table, "codebook")


@pytest.mark.parametrize("method", ["cce-paper", "collide"])
@pytest.mark.parametrize("change", [parametrized, pruned, normalized])
def test_a_codebook_that_is_computed_from_others_is_rejected_and_left_alone(method, change):
    table = cce.create_embedding(method, num_embeddings=200, embedding_dim=8, num_params=240, seed=0)
    change(table)
    before = table.to_dense()
    with pytest.raises(ValueError, match=r"^codebook must be a parameter to be clustered, got one computed"):
        table.cluster(generator=seeded())
    assert torch.equal(table.to_dense(), before)
    with pytest.raises(ValueError, match=r"^table 'embedding' cannot be clustered: codebook must be a parameter"):
        cce.reclustering.ClusterSchedule(nn.ModuleDict({"embedding": table}), every=1)


def test_an_event_counts_ids_rows_and_columns():
    table, _, _, event = clustered()
    assert (event.num_ids, event.num_rows) == (500, 10)
    assert len(event.inertias) == table.num_columns == 4
    assert all(inertia > 0 for inertia in event.inertias)
    assert 0 < event.seconds < 60


def test_what_an_event_says_of_pointers_is_true():
    table, before, _, event = clustered()
    after = table.assignments(torch.arange(500))
    assert event.churn == pytest.approx(churn(before, after))
    assert event.entropies == pytest.approx(column_entropies(after, 2))
    assert event.dead_rows == count_dead([after], 10)


def test_a_transfer_names_the_rows_that_ids_came_from_and_went_to():
    table, before, _, event = clustered()
    after, transfer = table.assignments(torch.arange(500)), event.transfer
    assert transfer.parameter is table.codebook
    assert int(transfer.counts.sum()) == 500 * 4
    pairs = {
        (int(o), int(n)): int(c) for o, n, c in zip(transfer.old_rows, transfer.new_rows, transfer.counts, strict=True)
    }
    for column in range(4):
        base = column * 2 * 10  # a clustered table and a helper for each column
        for old, new in zip(before[:50, column].tolist(), after[:50, column].tolist(), strict=True):
            together = ((before[:, column] == old) & (after[:, column] == new)).sum()
            assert pairs[base + old, base + new] == together
    helpers = [row for column in range(4) for row in range(column * 20 + 10, column * 20 + 20)]
    assert transfer.restarted.tolist() == transfer.old_restarted.tolist() == helpers


def test_a_transfer_follows_a_change_of_size():
    table, _, _, event = clustered(FirstRowsEmbedding, first_factor=3)
    assert event.num_rows == table.num_rows == 10
    assert int(event.transfer.new_rows.max()) < 80 <= int(event.transfer.old_rows.max()) < 240
    assert (len(event.transfer.restarted), len(event.transfer.old_restarted)) == (40, 120)


def test_learning_to_collide_says_which_parameters_it_replaced():
    table = cce.embeddings.CollidingEmbedding(300, 8, num_rows=12, generator=seeded())
    thin, projection = table.codebook, table.projection
    assert table.can_cluster
    event = table.cluster(generator=seeded(1))
    assert event.replaced == {thin: table.codebook, projection: None}
    assert (event.num_ids, event.num_rows, len(event.inertias)) == (300, 12, 1)
    assert not table.can_cluster


def test_an_interrupt_wrapped_by_a_compiled_loop_is_an_interrupt_again():
    def wrapped(cause):
        try:
            try:
                raise cause
            except BaseException as first:
                raise SystemError("returned a result with an exception set") from first
        except SystemError as second:
            raise SystemError("returned a result with an exception set") from second

    with pytest.raises(KeyboardInterrupt), clean_interrupts():
        wrapped(KeyboardInterrupt())
    with pytest.raises(SystemError), clean_interrupts():
        wrapped(ValueError())
