"""Tables clustered as one pool are the tables clustered alone."""

import pytest
import torch

import cce
from cce.embeddings import clusterable
from cce.embeddings.clusterable import cluster_all, stage_all
from helpers.linear_tables import seeded


def tables_of(*sizes):
    return {f"table {n}": cce.embeddings.ClusteredEmbedding(n, 8, num_rows=10, generator=seeded(n)) for n in sizes}


def states(tables):
    return [tensor for table in tables.values() for tensor in table.state_dict().values()]


@pytest.mark.slow
def test_every_table_is_clustered_and_events_come_in_their_order():
    tables = tables_of(50, 400, 100)
    events = cluster_all(tables, seeded(1))
    assert [event.num_ids for event in events] == [50, 400, 100]
    assert [event.transfer.parameter for event in events] == [table.codebook for table in tables.values()]


@pytest.mark.slow
def test_staged_tables_are_as_they_were_until_they_are_applied():
    tables = tables_of(50, 400, 100)
    before, clustered = states(tables_of(50, 400, 100)), tables_of(50, 400, 100)
    cluster_all(clustered, seeded(1))
    staged = stage_all(tables, seeded(1))
    assert len(staged) == 3
    assert all(map(torch.equal, states(tables), before))
    for each in staged.values():
        each.apply()
    assert all(map(torch.equal, states(tables), states(clustered)))


@pytest.mark.slow
@pytest.mark.parametrize("small_ids", [0, 10**9])
def test_if_one_table_cannot_be_clustered_none_is_and_it_is_named(monkeypatch, small_ids):
    monkeypatch.setattr(clusterable, "SMALL_IDS", small_ids)
    tables = tables_of(300, 150, 200)
    with torch.no_grad():
        tables["table 150"].codebook[3] = torch.nan
    before = [tensor.clone() for tensor in states(tables)]
    with pytest.raises(ValueError, match=r"^table 150 cannot be clustered: points must be finite, got NaN or inf in"):
        cluster_all(tables, seeded(1))
    for tensor, kept in zip(states(tables), before, strict=True):
        torch.testing.assert_close(tensor, kept, rtol=0, atol=0, equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("small_ids", [0, 200, 10**9])
def test_neither_threads_nor_which_tables_are_small_can_be_seen(num_threads, monkeypatch, small_ids):
    monkeypatch.setattr(clusterable, "SMALL_IDS", small_ids)
    results = []
    for threads in (1, 2, 3):
        num_threads(threads)
        tables = tables_of(300, 150, 200, 100)
        cluster_all(tables, seeded(1))
        results.append(states(tables))
    seeds = torch.randint(2**62, (4,), generator=seeded(1)).tolist()
    alone = tables_of(300, 150, 200, 100)
    for table, seed in zip(alone.values(), seeds, strict=True):
        table.cluster(generator=torch.Generator().manual_seed(seed))
    for found in results:
        assert all(map(torch.equal, found, states(alone)))


def test_no_tables_are_no_events():
    assert cluster_all({}) == []
