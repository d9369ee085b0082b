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
    probe = Probe(model, find_collection(model), batch, 1)
    shift = torch.randn(20, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) / 10
    probe._run = lambda some, run=probe._run: run(some).double()
    _, slopes = probe.slopes(shift)
    for column in range(DIM):
        step = torch.zeros_like(shift)
        step[:, column] = 1e-3
        numeric = (probe.logits(shift + step) - probe.logits(shift - step)) / 2e-3
        torch.testing.assert_close(slopes[:, column], numeric, rtol=2e-2, atol=2e-3)


def test_the_model_is_itself_again_after_an_error():
    model = make_model()
    tables = find_collection(model)
    batch = Ratings().fetch(np.arange(4))
    before = tables(batch.ids)
    probe = Probe(model, tables, batch, 0)
    with pytest.raises(RuntimeError):
        probe.logits(torch.zeros(3, DIM))
    model.bias.requires_grad_(False)
    model.bias.data = torch.zeros(7)
    with pytest.raises(RuntimeError):
        probe.logits(torch.zeros(4, DIM))
    torch.testing.assert_close(tables(batch.ids), before)


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
