"""Optimizers by name."""

import pytest
import torch
from torch import nn

import cce
from cce.training.optimizers import OPTIMIZERS, create_optimizers, set_learning_rate


class Model(nn.Module):
    def __init__(self, sparse=False):
        super().__init__()
        self.table = cce.embeddings.FullEmbedding(10, 4, sparse=sparse, generator=torch.Generator().manual_seed(0))
        self.top = nn.Linear(4, 1)

    def forward(self, ids):
        return self.top(self.table(ids)).sum()


def test_torchs_optimizers_have_their_names():
    assert {"sgd", "adam", "adamw", "adagrad", "rmsprop", "sparse_adam", "radam", "nadam", "adadelta"} <= set(
        OPTIMIZERS
    )
    assert OPTIMIZERS["adamw"] is torch.optim.AdamW
    assert OPTIMIZERS["sgd"] is torch.optim.SGD


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "adagrad", "rmsprop", "radam", "nadam", "adamax"])
def test_one_optimizer_takes_all_parameters(name):
    model = Model()
    (optimizer,) = create_optimizers(name, model, lr=0.1)
    before = [p.clone() for p in model.parameters()]
    model(torch.arange(10)).backward()
    optimizer.step()
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0]


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "adagrad", "rmsprop"])
def test_weight_decay_is_that_of_the_tables(name):
    model = Model()
    (optimizer,) = create_optimizers(name, model, lr=0.1, weight_decay=0.01)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01, 0.0]
    tables, rest = (group["params"] for group in optimizer.param_groups)
    assert tables == list(model.table.parameters())
    assert rest == list(model.top.parameters())


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd"])
def test_no_decay_is_none_whatever_the_optimizer_has_by_default(name):
    (optimizer,) = create_optimizers(name, Model(), lr=0.1)
    assert optimizer.param_groups[0]["weight_decay"] == 0


def test_decay_of_an_optimizer_that_has_none_is_rejected():
    with pytest.raises(ValueError, match="optimizer 'rprop' has no option 'weight_decay'; its options are lr"):
        create_optimizers("rprop", Model(), lr=0.1, weight_decay=0.1)
    with pytest.raises(ValueError, match="optimizer 'sparse_adam' has no option 'weight_decay'"):
        create_optimizers("sparse_adam", Model(sparse=True), lr=0.1, weight_decay=0.1)


def test_sparse_adam_takes_the_tables_and_adam_the_rest():
    model = Model(sparse=True)
    tables, rest = create_optimizers("sparse_adam", model, lr=0.1)
    assert tables.param_groups[0]["params"] == list(model.table.parameters())
    assert rest.param_groups[0]["params"] == list(model.top.parameters())
    model(torch.arange(3)).backward()
    tables.step()
    rest.step()


def with_int8_rows():
    model = Model()
    model.table = cce.embeddings.CCEEmbedding(10, 4, generator=torch.Generator().manual_seed(0))
    return model


@pytest.mark.parametrize("name", ["adam", "adamw", "adagrad", "sgd"])
def test_one_optimizer_moves_int8_rows_and_the_rest(name):
    model = with_int8_rows()
    model.table.give_rows(torch.full((10,), 2))
    before = model.table(torch.arange(10)).detach()
    (optimizer,) = create_optimizers(name, model, lr=0.1)
    model(torch.arange(10)).backward()
    optimizer.step()
    assert (model.table(torch.arange(10)) != before).any(dim=1).all()
    assert optimizer.param_groups[0]["params"] == [p for p in model.parameters() if p.requires_grad]


@pytest.mark.parametrize("name", ["sparse_adam", "rmsprop"])
def test_an_optimizer_that_does_not_know_int8_rows_is_rejected(name):
    rule = "optimizer of int8 rows must be one of adam, adamw, adagrad, sgd; got"
    with pytest.raises(ValueError, match=f"{rule} '{name}'"):
        create_optimizers(name, with_int8_rows(), lr=0.1)


def test_decays_of_tables_and_the_rest_reach_their_groups():
    tables, rest = create_optimizers("adam", with_int8_rows(), lr=0.1, weight_decay=0.5)[0].param_groups
    assert (tables["weight_decay"], rest["weight_decay"]) == (0.5, 0)
    assert len(tables["params"]) == 1


def test_options_reach_the_optimizer_and_wrong_ones_are_named():
    (optimizer,) = create_optimizers("sgd", Model(), lr=0.1, options={"momentum": 0.9})
    assert optimizer.param_groups[0]["momentum"] == 0.9
    with pytest.raises(ValueError, match="optimizer 'sgd' has no option 'betas'; its options are lr, momentum"):
        create_optimizers("sgd", Model(), lr=0.1, options={"betas": (0.9, 0.99)})
    with pytest.raises(ValueError, match=r"optimizer must be one of adadelta, .*got 'sdg'"):
        create_optimizers("sdg", Model(), lr=0.1)


def test_a_line_and_a_cosine_fall_to_zero_in_every_group():
    parameters = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": [parameters[0]], "lr": 1.0}, {"params": [parameters[1]]}], lr=2.0)

    def rates(schedule, steps):
        found = []
        for step in steps:
            set_learning_rate([optimizer], 0.5, step, schedule=schedule, total_steps=10)
            (rate,) = {group["lr"] for group in optimizer.param_groups}
            found.append(rate)
        return found

    assert rates("constant", [0, 9]) == [0.5, 0.5]
    assert rates("linear", range(11)) == pytest.approx([0.5 * (1 - k / 10) for k in range(11)])
    assert rates("cosine", [0, 5, 99]) == pytest.approx([0.5, 0.25, 0])
    with pytest.raises(ValueError, match="schedule must be one of constant, linear, cosine; got 'step'"):
        rates("step", [0])


@pytest.mark.parametrize(("name", "given", "wanted"), [("adam", None, 0.1), ("sgd", None, 0.003), ("sgd", 0.5, 0.5)])
def test_int8_rows_have_a_learning_rate_that_rises_and_falls_with_the_other(name, given, wanted):
    (optimizer,) = create_optimizers(name, with_int8_rows(), lr=0.1, options={} if given is None else {"row_lr": given})
    (group,) = optimizer.param_groups
    assert group["lr"] * group["row_lr_factor"] == pytest.approx(wanted)
    set_learning_rate([optimizer], 0.05, 0, schedule="constant", total_steps=1)
    assert group["lr"] * group["row_lr_factor"] == pytest.approx(wanted / 2)
