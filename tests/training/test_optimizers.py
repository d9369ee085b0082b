"""Optimizers by name."""

import pytest
import torch
from torch import nn

import cce
from cce.optim import SGD, RowwiseAdagrad
from cce.training.optimizers import OPTIMIZERS, create_optimizers


class Model(nn.Module):
    def __init__(self, sparse=False):
        super().__init__()
        self.table = cce.FullEmbedding(10, 4, sparse=sparse, generator=torch.Generator().manual_seed(0))
        self.top = nn.Linear(4, 1)

    def forward(self, ids):
        return self.top(self.table(ids)).sum()


def test_torchs_optimizers_have_their_names():
    assert {"sgd", "adam", "adamw", "adagrad", "rmsprop", "sparse_adam", "radam", "nadam", "adadelta"} <= set(
        OPTIMIZERS
    )
    assert OPTIMIZERS["adamw"] is torch.optim.AdamW
    assert OPTIMIZERS["sgd"] is SGD
    assert OPTIMIZERS["rowwise_adagrad"] is RowwiseAdagrad


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "adagrad", "rmsprop", "radam", "nadam", "adamax"])
def test_one_optimizer_takes_all_parameters(name):
    model = Model()
    (optimizer,) = create_optimizers(name, model, lr=0.1, weight_decay=0.01)
    before = [p.clone() for p in model.parameters()]
    model(torch.arange(10)).backward()
    optimizer.step()
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert optimizer.param_groups[0]["weight_decay"] == 0.01


def test_sparse_adam_takes_the_tables_and_adam_the_rest():
    model = Model(sparse=True)
    tables, rest = create_optimizers("sparse_adam", model, lr=0.1)
    assert tables.param_groups[0]["params"] == list(model.table.parameters())
    assert rest.param_groups[0]["params"] == list(model.top.parameters())
    model(torch.arange(3)).backward()
    tables.step()
    rest.step()


def test_options_reach_the_optimizer_and_wrong_ones_are_named():
    (optimizer,) = create_optimizers("sgd", Model(), lr=0.1, options={"momentum": 0.9})
    assert optimizer.param_groups[0]["momentum"] == 0.9
    with pytest.raises(ValueError, match="optimizer 'sgd' has no option 'betas'; its options are lr, momentum"):
        create_optimizers("sgd", Model(), lr=0.1, options={"betas": (0.9, 0.99)})
    with pytest.raises(ValueError, match=r"optimizer must be one of adadelta, .*got 'sdg'"):
        create_optimizers("sdg", Model(), lr=0.1)
