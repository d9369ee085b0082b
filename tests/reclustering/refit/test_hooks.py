"""A model asked with other vectors: its slopes, and that it is itself again afterwards."""

import numpy as np
import pytest
import torch
from torch import nn

from cce import EmbeddingCollection
from cce.reclustering.refit.hooks import LookupHooks, Target, in_evaluation
from cce.reclustering.refit.sources import find_collection
from helpers.ratings import DIM, SCHEMA, Ratings, make_model


def hooks_of(model: nn.Module) -> tuple[LookupHooks, list[Target]]:
    """Hooks on all tables, and targets of all ids."""
    tables = dict(find_collection(model).tables.items())
    sizes = SCHEMA.vocabulary_sizes
    targets = [
        Target(name, torch.arange(size), tables[name].to_dense().detach(), size, DIM) for name, size in sizes.items()
    ]
    return LookupHooks(model, tables), targets


def test_slopes_are_those_of_small_differences():
    model, rows = make_model("dlrm").double(), Ratings()
    hooks, targets = hooks_of(model)
    for target in targets:  # rows of different ids: one differs from the next in one vector at most
        column = list(SCHEMA.vocabulary_sizes).index(target.name)
        _, first = np.unique(rows.ids[:, column].numpy(), return_index=True)
        batch = rows.fetch(first)
        start = torch.randn(target.present.shape, generator=torch.Generator().manual_seed(0)).double() / 10
        with hooks.attached():
            recorded = hooks.record(lambda batch=batch: model(batch), [(target, start)], with_jacobians=True)
            found = recorded.find(target, None)
            for dim in range(DIM):
                step = torch.zeros_like(start)
                step[:, dim] = 2e-4
                above, below = (
                    hooks.record(lambda batch=batch: model(batch), [(target, start + way * step)]).outputs
                    for way in (1, -1)
                )
                numeric = ((above - below) / 4e-4)[found.rows].float()
                torch.testing.assert_close(found.jacobians[:, dim], numeric, rtol=2e-2, atol=2e-3)


def test_the_model_is_itself_again_after_an_error():
    model = make_model()
    batch = Ratings().fetch(np.arange(4))
    before = model(batch)
    hooks, targets = hooks_of(model)
    bias = model.bias.data
    model.bias.requires_grad_(False)
    model.bias.data = torch.zeros(7)
    with pytest.raises(RuntimeError), hooks.attached():
        hooks.record(lambda: model(batch), [(targets[0], torch.ones(30, DIM))])
    model.bias.data = bias
    assert torch.equal(model(batch), before)
    with hooks.attached():
        assert torch.equal(model(batch), before)
        assert not torch.equal(hooks.record(lambda: model(batch), [(targets[0], torch.ones(30, DIM))]).outputs, before)
        assert torch.equal(hooks.record(lambda: model(batch)).outputs, before)


def test_every_part_goes_back_to_its_mode():
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout()))
    model[1].eval()
    modes = [module.training for module in model.modules()]
    with in_evaluation(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == modes


def test_a_model_has_one_collection():
    with pytest.raises(ValueError, match=r"must have one EmbeddingCollection .* got 0"):
        find_collection(nn.Linear(2, 2))
    unified = EmbeddingCollection({"a": 5, "b": 6}, 4, method="hash", cap=8, unified=True)
    with pytest.raises(ValueError, match="got a unified one"):
        find_collection(nn.Sequential(unified))
