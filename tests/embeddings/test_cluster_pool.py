"""Tables clustered as one pool are the tables clustered alone."""

import pytest
import torch

import cce
from cce.embeddings import cluster_pool
from cce.embeddings.cluster_pool import cluster_all
from helpers.linear_tables import seeded


def tables_of(*sizes):
    return [cce.ClusteredEmbedding(n, 8, num_rows=10, generator=seeded(n)) for n in sizes]


def states(tables):
    return [tensor for table in tables for tensor in table.state_dict().values()]


def test_every_table_is_clustered_and_its_event_stands_in_its_place():
    tables, done = tables_of(50, 400, 100), []
    events = cluster_all(tables, seeded(1), done=lambda place, event: done.append(1))
    assert [event.num_ids for event in events] == [50, 400, 100]
    assert [event.transfer.parameter for event in events] == [table.codebook for table in tables]
    assert len(done) == 3


@pytest.mark.parametrize("small_ids", [0, 200, 10**9])
def test_neither_threads_nor_which_tables_are_small_can_be_seen(num_threads, monkeypatch, small_ids):
    monkeypatch.setattr(cluster_pool, "SMALL_IDS", small_ids)
    results = []
    for threads in (1, 2, 3):
        num_threads(threads)
        tables = tables_of(300, 150, 200, 100)
        cluster_all(tables, seeded(1))
        results.append(states(tables))
    seeds = torch.randint(2**62, (4,), generator=seeded(1)).tolist()
    alone = tables_of(300, 150, 200, 100)
    for table, seed in zip(alone, seeds, strict=True):
        table.cluster(generator=torch.Generator().manual_seed(seed))
    for found in results:
        assert all(map(torch.equal, found, states(alone)))


def test_no_tables_are_no_events():
    assert cluster_all([]) == []
