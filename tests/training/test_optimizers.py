"""Optimizers by name."""

import pytest
import torch
from torch import nn

import cce
from cce.training.session import OPTIMIZERS, create_optimizer, set_learning_rate


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = cce.embeddings.FullEmbedding(10, 4, generator=torch.Generator().manual_seed(0))
        self.top = nn.Linear(4, 1)

    def forward(self, ids):
        return self.top(self.table(ids)).sum()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_optimizer_takes_all_parameters(name):
    model = Model()
    optimizer = create_optimizer(name, model, lr=0.1)
    before = [p.clone() for p in model.parameters()]
    model(torch.arange(10)).backward()
    optimizer.step()
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weight_decay_is_that_of_the_tables(name):
    model = Model()
    optimizer = create_optimizer(name, model, lr=0.1, weight_decay=0.01)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01, 0.0]
    tables, rest = (group["params"] for group in optimizer.param_groups)
    assert tables == list(model.table.parameters())
    assert rest == list(model.top.parameters())


def with_int8_rows():
    model = Model()
    model.table = cce.embeddings.CCEEmbedding(10, 4, generator=torch.Generator().manual_seed(0))
    return model


@pytest.mark.parametrize("name", ["adam", "adamw", "adagrad", "sgd"])
def test_one_optimizer_moves_int8_rows_and_the_rest(name):
    model = with_int8_rows()
    model.table.give_rows(torch.full((10,), 2))
    before = model.table(torch.arange(10)).detach()
    optimizer = create_optimizer(name, model, lr=0.1)
    model(torch.arange(10)).backward()
    optimizer.step()
    assert (model.table(torch.arange(10)) != before).any(dim=1).all()
    assert optimizer.param_groups[0]["params"] == [p for p in model.parameters() if p.requires_grad]


def test_options_reach_the_optimizer_and_wrong_ones_are_named():
    optimizer = create_optimizer("sgd", Model(), lr=0.1, options={"momentum": 0.9})
    assert optimizer.param_groups[0]["momentum"] == 0.9
    with pytest.raises(
        ValueError, match=r"optimizer 'sgd' could not be made with .*unexpected keyword argument 'betas'"
    ):
        create_optimizer("sgd", Model(), lr=0.1, options={"betas": (0.9, 0.99)})


def test_a_line_and_a_cosine_fall_to_zero_in_every_group():
    parameters = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": [parameters[0]], "lr": 1.0}, {"params": [parameters[1]]}], lr=2.0)

    def rates(schedule, steps):
        found = []
        for step in steps:
            set_learning_rate(optimizer, 0.5, step, schedule=schedule, total_steps=10)
            (rate,) = {group["lr"] for group in optimizer.param_groups}
            found.append(rate)
        return found

    assert rates("constant", [0, 9]) == [0.5, 0.5]
    assert rates("linear", range(11)) == pytest.approx([0.5 * (1 - k / 10) for k in range(11)])
    assert rates("cosine", [0, 5, 99]) == pytest.approx([0.5, 0.25, 0])


@pytest.mark.parametrize(("name", "given", "wanted"), [("adam", None, 0.1), ("sgd", None, 0.003), ("sgd", 0.5, 0.5)])
def test_int8_rows_have_a_learning_rate_that_rises_and_falls_with_the_other(name, given, wanted):
    optimizer = create_optimizer(name, with_int8_rows(), lr=0.1, options={} if given is None else {"row_lr": given})
    (group,) = optimizer.param_groups
    assert group["lr"] * group["row_lr_factor"] == pytest.approx(wanted)
    set_learning_rate(optimizer, 0.05, 0, schedule="constant", total_steps=1)
    assert group["lr"] * group["row_lr_factor"] == pytest.approx(wanted / 2)
