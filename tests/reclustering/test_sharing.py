"""One process clusters everything; shares of several are tested in tests/distributed/test_ranks.py."""

import torch

import cce
from cce.distributed import Ranks
from cce.reclustering.schedule import cluster_tables


def tables():
    seeds = {n: torch.Generator().manual_seed(n) for n in (60, 90, 30)}
    return {
        f"table {n}": cce.embeddings.ClusteredEmbedding(n, 4, num_rows=5, generator=seed) for n, seed in seeds.items()
    }


def test_events_come_in_the_order_of_the_tables_and_optimizers_are_repaired():
    made = tables()
    optimizer = torch.optim.Adam([p for table in made.values() for p in table.parameters()])
    sum(table(torch.arange(30)).sum() for table in made.values()).backward()
    optimizer.step()
    generator = torch.Generator().manual_seed(0)
    events = cluster_tables(made, [optimizer], policy="transfer", generator=generator, ranks=Ranks())
    assert [event.num_ids for event in events] == [60, 90, 30]
    for table, event in zip(made.values(), events, strict=True):
        assert not optimizer.state[table.codebook]["exp_avg"][event.transfer.restarted].any()


def test_a_table_draws_the_same_numbers_whichever_are_clustered_beside_it():
    from cce.embeddings.clusterable import cluster_all, stage_all

    all_of_them, some, name = tables(), tables(), "table 90"
    cluster_all(all_of_them, torch.Generator().manual_seed(3))
    staged = stage_all(some, torch.Generator().manual_seed(3), is_mine=lambda each: each == name)
    assert list(staged) == [name]
    staged[name].apply()
    assert torch.equal(some[name].to_dense(), all_of_them[name].to_dense())
    assert torch.equal(some["table 60"].to_dense(), tables()["table 60"].to_dense())


def test_nothing_to_cluster_is_nothing_to_do():
    assert cluster_tables({}, [], policy="keep", generator=torch.Generator(), ranks=Ranks()) == []
