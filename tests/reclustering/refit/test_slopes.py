"""A model asked with other vectors: its slopes, and that it is itself again afterwards."""

import numpy as np
import pytest
import torch
from torch import nn

from cce import EmbeddingCollection
from cce.reclustering.refit.slopes import Probe, find_collection, in_evaluation
from helpers.ratings import DIM, Ratings, make_model


def test_slopes_are_those_of_small_differences():
    model, rows = make_model("dlrm").double(), Ratings()
    batch = rows.fetch(np.arange(20))
    probe = Probe(model, find_collection(model), batch)
    probe._run = lambda vectors, run=probe._run: run(vectors).double()
    probe.move(0, torch.arange(20), torch.randn(20, DIM, generator=torch.Generator().manual_seed(0)) / 10)
    _, slopes = probe.slopes()
    for feature in range(2):
        for column in range(DIM):
            step = torch.zeros(20, DIM)
            step[:, column] = 2e-4
            probe.move(feature, torch.arange(20), step)
            above = probe.logits()
            probe.move(feature, torch.arange(20), -2 * step)
            numeric = (above - probe.logits()) / 4e-4
            probe.move(feature, torch.arange(20), step)
            torch.testing.assert_close(slopes[:, feature, column], numeric, rtol=2e-2, atol=2e-3)


def test_the_model_is_itself_again_after_an_error():
    model = make_model()
    tables = find_collection(model)
    batch = Ratings().fetch(np.arange(4))
    before = tables(batch.ids)
    probe = Probe(model, tables, batch)
    probe.move(0, torch.tensor([1, 1]), torch.ones(2, DIM))
    model.bias.requires_grad_(False)
    model.bias.data = torch.zeros(7)
    with pytest.raises(RuntimeError):
        probe.logits()
    torch.testing.assert_close(tables(batch.ids), before)
    probe.vectors[1, 0] -= 2
    torch.testing.assert_close(probe.vectors, before)


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
