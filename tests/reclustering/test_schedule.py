"""Clustering at the right steps, of all tables, repeatable and resumable."""

import copy

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from torch import nn

import cce
from cce.data import SyntheticClicks


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        g = torch.Generator().manual_seed(0)
        self.user = cce.embeddings.ClusteredEmbedding(200, 4, num_rows=5, generator=g)
        self.item = cce.embeddings.EmbeddingBag(cce.embeddings.ClusteredEmbedding(100, 4, num_rows=5, generator=g))
        self.full = cce.embeddings.FullEmbedding(10, 4, generator=g)
        self.thin = cce.embeddings.CollidingEmbedding(50, 4, num_rows=3, generator=g)

    def forward(self, ids):
        return (self.user(ids) * self.item(ids.unsqueeze(1)) * self.thin(ids % 50)).sum() + self.full(ids % 10).sum()


def steps_of(schedule, num_steps):
    return [step for step in range(1, num_steps + 1) if schedule.step()]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"every": 3}, [3, 6, 9, 12]),
        ({"every": 3, "times": 2}, [3, 6]),
        ({"at_steps": [2, 7]}, [2, 7]),
        ({"at_epochs": [0.25, 0.5], "steps_per_epoch": 8}, [2, 4]),
        ({"at_epochs": [1.0, 2], "steps_per_epoch": 5}, [5, 10]),
        ({"at_steps": np.array([2, 7])}, [2, 7]),
    ],
)
def test_clusterings_come_at_their_steps(options, expected):
    model = nn.Sequential(cce.embeddings.ClusteredEmbedding(20, 4, num_rows=2))
    assert steps_of(cce.reclustering.ClusterSchedule(model, **options), 12) == expected


def test_the_next_step_is_known():
    model = nn.Sequential(cce.embeddings.ClusteredEmbedding(20, 4, num_rows=2))
    schedule = cce.reclustering.ClusterSchedule(model, at_steps=[2, 5])
    assert schedule.next_step == 2
    steps_of(schedule, 3)
    assert schedule.next_step == 5
    steps_of(schedule, 3)
    assert schedule.next_step is None
    assert cce.reclustering.ClusterSchedule(model, every=7).next_step == 7


def test_all_tables_are_found_and_events_told():
    model = Model()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.arange(100)).backward()
    optimizer.step()
    schedule = cce.reclustering.ClusterSchedule(model, optimizer, every=1)
    events = schedule.step()
    assert [event.num_ids for event in events] == [200, 100, 50]
    assert schedule.clustered == ["user", "item.table", "thin"]
    assert [p for group in optimizer.param_groups for p in group["params"]] == list(model.parameters())
    assert [event.num_ids for event in schedule.step()] == [200, 100]  # learning to collide is done
    assert schedule.clustered == ["user", "item.table"]


@pytest.mark.slow
def test_a_table_that_cannot_be_clustered_is_named_with_its_feature_and_nothing_has_happened():
    tables = cce.EmbeddingCollection({"user": 300, "items": 200, "a.b": 100}, 4, method="cce-paper", cap=80, seed=0)
    model = nn.ModuleDict({"embeddings": tables})
    optimizer = torch.optim.Adam(model.parameters())
    tables(torch.arange(90).reshape(30, 3)).sum().backward()
    optimizer.step()
    schedule = cce.reclustering.ClusterSchedule(model, optimizer, at_steps=[2])
    schedule.step()
    good = copy.deepcopy(tables.state_dict())
    with torch.no_grad():
        tables.tables["items"].codebook[1] = torch.nan
    before, moments = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict()["state"])
    message = "^table 'embeddings.tables.items' of feature 'items' cannot be clustered: points must be finite, got NaN"
    with pytest.raises(ValueError, match=message):
        schedule.step()
    assert all(torch.equal(value.nan_to_num(), before[name].nan_to_num()) for name, value in _floats(model))
    for index, state in optimizer.state_dict()["state"].items():
        assert torch.equal(state["exp_avg"], moments[index]["exp_avg"])
    assert schedule.num_steps == 1
    assert schedule.clustered == []
    tables.load_state_dict(good)
    events = schedule.step()  # the same step, once more, as if nothing had been
    assert schedule.num_steps == 2
    assert len(events) == 3
    assert schedule.clustered == ["embeddings.tables.user", "embeddings.tables.items", "embeddings.tables.a.b"]
    sizes = {"user": 300, "items": 200, "a.b": 100}
    again = nn.ModuleDict({"embeddings": cce.EmbeddingCollection(sizes, 4, method="cce-paper", cap=80)})
    again["embeddings"].load_state_dict(good)
    cce.reclustering.ClusterSchedule(again, every=1).step()
    assert all(torch.equal(value, dict(_floats(again))[name]) for name, value in _floats(model))


def _floats(model):
    return [(name, value) for name, value in model.state_dict().items() if value.is_floating_point()]


def test_frozen_tables_are_left_alone():
    table = cce.embeddings.ClusteredEmbedding(50, 4, num_rows=3).requires_grad_(False)
    before = table.to_dense()
    assert cce.reclustering.ClusterSchedule(nn.Sequential(table), every=1).step() == []
    assert torch.equal(table.to_dense(), before)


def test_several_optimizers_may_share_the_model():
    model = Model()
    tables = [*model.user.parameters(), *model.item.parameters(), *model.thin.parameters()]
    optimizers = [torch.optim.Adam(tables), torch.optim.SGD(model.full.parameters(), lr=0.1)]
    model(torch.arange(100)).backward()
    for optimizer in optimizers:
        optimizer.step()
    schedule = cce.reclustering.ClusterSchedule(model, optimizers, every=1)
    event = schedule.step()[0]
    assert not optimizers[0].state[model.user.codebook]["exp_avg"][event.transfer.restarted].any()


def train(model, optimizer, schedule, start, stop, averaged=None):
    for step in range(start, stop):
        ids = torch.randint(0, 100, (32,), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(ids).square().backward()
        optimizer.step()
        if averaged is not None:
            averaged.update_parameters(model)
        schedule.step()


def start_run():
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return model, optimizer, cce.reclustering.ClusterSchedule(model, optimizer, every=7, times=3, seed=4)


@pytest.mark.slow
def test_a_resumed_run_ends_with_the_same_bits():
    model, optimizer, schedule = start_run()
    train(model, optimizer, schedule, 0, 25)
    first, first_optimizer, first_schedule = start_run()
    train(first, first_optimizer, first_schedule, 0, 10)
    second = Model()
    second.load_state_dict(first.state_dict())
    second_optimizer = torch.optim.Adam(second.parameters(), lr=0.01)
    second_optimizer.load_state_dict(copy.deepcopy(first_optimizer.state_dict()))
    second_schedule = cce.reclustering.ClusterSchedule(second, second_optimizer, every=7, times=3, seed=0)
    second_schedule.load_state_dict(first_schedule.state_dict())
    train(second, second_optimizer, second_schedule, 10, 25)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name


def test_a_state_that_is_none_is_rejected_and_nothing_changes():
    *_, schedule = start_run()
    for state, missing in (({}, "generator, num_steps"), ({"num_steps": 9}, "generator")):
        with pytest.raises(ValueError, match=rf"^state must be that of a ClusterSchedule, got none of {missing}\.$"):
            schedule.load_state_dict(state)
    assert schedule.num_steps == 0


def test_clustering_does_not_disturb_the_global_random_numbers():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    cce.reclustering.ClusterSchedule(Model(), every=1).step()
    assert torch.equal(torch.rand(3), expected)


def planted_run(method, **options):
    """300 users in 6 hidden clusters, 200 rows for each: how well the learned vectors tell the clusters."""
    g = torch.Generator().manual_seed(0)
    clicks = SyntheticClicks((300, 60), num_clusters=6, zipf=0.2, generator=g)
    sample = clicks.sample(60_000, generator=g)
    users = cce.create_embedding(method, 300, 8, num_params=1_280, generator=g, **options)
    items = cce.embeddings.FullEmbedding(60, 8, generator=g)
    optimizer = torch.optim.Adam([*users.parameters(), *items.parameters()], lr=0.03)
    schedule = cce.reclustering.ClusterSchedule(nn.ModuleList([users, items]), optimizer, every=118, times=6)
    for _ in range(8):
        for rows in torch.split(torch.randperm(60_000, generator=g), 512):
            logits = (users(sample.ids[rows, 0]) * items(sample.ids[rows, 1])).sum(-1)
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(logits, sample.labels[rows]).backward()
            optimizer.step()
            schedule.step()
    found = KMeans(6, n_init=5, random_state=0).fit_predict(users.to_dense())
    return adjusted_rand_score(clicks.clusters[0], found)


@pytest.mark.slow
def test_six_clusterings_recover_planted_clusters_and_hashing_cannot():
    assert planted_run("cce-paper", num_columns=1, settings=cce.clustering.ClusterSettings(init="k-means++")) > 0.9
    for method in ("hash", "hash-embedding", "ce-concat"):
        assert planted_run(method) < 0.5
