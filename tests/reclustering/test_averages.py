"""Averaged copies of a model restart their clustered tables at an event, and go on averaging the rest."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import cce
from cce_lab.variants import FirstRowsEmbedding


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = FirstRowsEmbedding(100, 4, num_rows=5, first_factor=2, generator=torch.Generator().manual_seed(0))
        self.thin = cce.embeddings.CollidingEmbedding(100, 4, num_rows=5)
        self.head = nn.Linear(4, 1)

    def forward(self, ids):
        return self.head(self.table(ids) + self.thin(ids))


def train_step(model, optimizer, seed):
    ids = torch.randint(0, 100, (32,), generator=torch.Generator().manual_seed(seed))
    optimizer.zero_grad()
    (model(ids) - 1).square().mean().backward()
    optimizer.step()


def run(**options):
    model = Model()
    averaged = AveragedModel(model, **options)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    schedule = cce.reclustering.ClusterSchedule(model, optimizer, at_steps=[5, 9], averages=[averaged])
    return model, averaged, optimizer, schedule


@pytest.mark.slow
def test_at_an_event_the_averaged_table_is_the_model_s_and_the_head_stays_averaged():
    for options in ({}, {"use_buffers": True}, {"multi_avg_fn": get_ema_multi_avg_fn(0.9)}):
        model, averaged, optimizer, schedule = run(**options)
        for step in range(5):
            train_step(model, optimizer, step)
            averaged.update_parameters(model)
            schedule.step()
        ids = torch.arange(100)
        assert torch.equal(averaged.module.table(ids), model.table(ids))
        assert torch.equal(averaged.module.thin(ids), model.thin(ids))
        assert not torch.equal(averaged.module.head.weight, model.head.weight)


def test_between_events_rows_are_averaged_and_pointers_are_not():
    model, averaged, optimizer, schedule = run()
    rows = []
    for step in range(8):
        train_step(model, optimizer, step)
        averaged.update_parameters(model)
        schedule.step()
        if step >= 4:
            rows.append(model.table.codebook.detach().clone())
    assert torch.equal(averaged.module.table.assignments.pointers.words, model.table.assignments.pointers.words)
    assert torch.equal(averaged.module.table.helper.seeds, model.table.helper.seeds)
    assert not torch.equal(averaged.module.table.codebook, model.table.codebook)
    low, high = torch.stack(rows).min(0).values, torch.stack(rows).max(0).values
    average = averaged.module.table.codebook
    assert ((average >= low - 1e-6) & (average <= high + 1e-6)).all()


class Wrapper(nn.Module):
    """What DistributedDataParallel does to names."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        return self.module(*inputs)


@pytest.mark.slow
def test_wrappers_around_the_model_do_not_matter():
    for wrap in (Wrapper, lambda model: torch.compile(model, backend="eager")):
        model = Model()
        averaged = AveragedModel(model)
        schedule = cce.reclustering.ClusterSchedule(wrap(model), at_steps=[1], averages=[averaged])
        schedule.step()
        assert torch.equal(averaged.module.table.to_dense(), model.table.to_dense())


def test_a_plain_copy_can_be_restarted_too():
    model = Model()
    copied = copy.deepcopy(model)
    model.table.cluster()
    cce.reclustering.restart_average(copied, model)
    assert torch.equal(copied.table(torch.arange(100)), model.table(torch.arange(100)))
