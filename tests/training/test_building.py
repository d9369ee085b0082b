"""Parts as the configuration says."""

import pytest
import torch

import cce
from cce.data import PreparedData
from cce.distributed import Ranks
from cce.training.building import build_model, build_schedule
from cce.training.optimizers import create_optimizers
from helpers.runs import tiny_config


def built(data, **changes):
    config = tiny_config(data, **changes)
    return config, build_model(config, PreparedData.open(data).schema)


def test_the_seed_alone_makes_the_model(data):
    one, two, other = (built(data, seed=seed)[1].state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["top.0.weight"], other["top.0.weight"])


def test_budgets_and_options_reach_the_tables(data):
    options = {"num_columns": 2, "settings": {"start": "k-means++"}}
    _, model = built(data, method_options=options)
    table = model.tables.tables["c0"]
    assert isinstance(table, cce.ClusteredEmbedding)
    assert table.num_columns == 2
    assert table.settings.start == "k-means++"
    assert table.num_params <= 320
    assert built(data, method="full", cap=None)[1].tables.num_params == (121 + 61 + 31) * 8


def steps(data, steps_per_epoch=100, **changes):
    config, model = built(data, **({"cluster_every": None, "cluster_times": None} | changes))
    schedule = build_schedule(config, model, create_optimizers("sgd", model, lr=0.1), steps_per_epoch, Ranks())
    return schedule if schedule is None else schedule.steps


def test_the_papers_schedules_are_chosen_by_the_epochs(data):
    assert steps(data, epochs=1) == {25, 50}
    assert steps(data, epochs=10) == {100, 200, 300, 400, 500, 600}
    assert steps(data, schedule="strategy-1", cluster_times=1) == {50}
    assert steps(data, cluster_every=3, cluster_times=2) == {3, 6}
    assert steps(data, schedule="none") is None


def test_a_wrong_method_is_refused(data):
    with pytest.raises(ValueError, match="method"):
        built(data, method="cees")
