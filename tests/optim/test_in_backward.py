"""Steps taken during backward are the ordinary steps, and leave no gradients."""

import copy

import pytest
import torch
from torch import nn

import cce
from cce.optim import SGD, RowwiseAdagrad, apply_in_backward

OPTIMIZERS = {
    "sgd": lambda p: SGD(p, lr=0.1),
    "momentum": lambda p: SGD(p, lr=0.1, momentum=0.9),
    "adagrad": lambda p: RowwiseAdagrad(p, lr=0.1, lr_decay=0.1),
}


class Model(nn.Module):
    """A table with sparse gradients, and dense layers."""

    def __init__(self):
        super().__init__()
        g = torch.Generator().manual_seed(0)
        self.table = cce.create_embedding("cce", 200, 8, num_params=400, sparse=True, generator=g)
        self.layer = nn.Linear(8, 3)
        with torch.no_grad():
            for parameter in self.layer.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=g))

    def forward(self, ids):
        return self.layer(self.table(ids)).square().mean()


def train(model, optimizer, steps=4, *, zero=True, start=0):
    for step in range(start, start + steps):
        ids = torch.randint(0, 200, (16,), generator=torch.Generator().manual_seed(step))
        if zero:
            optimizer.zero_grad()
        model(ids).backward()
        optimizer.step()


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_equals_the_ordinary_step_to_the_bit(path, name):
    ordinary, during = Model(), Model()
    train(ordinary, OPTIMIZERS[name](ordinary.parameters()))
    optimizer = OPTIMIZERS[name](during.parameters())
    apply_in_backward(optimizer)
    train(during, optimizer, zero=False)
    assert same(ordinary, during)
    assert not same(ordinary, Model())


def test_parameters_move_during_backward_and_gradients_are_freed_one_by_one():
    model = Model()
    optimizer = SGD(model.parameters(), lr=0.1)
    apply_in_backward(optimizer)
    alive = []
    for parameter in model.parameters():
        parameter.register_hook(lambda grad: alive.append(sum(p.grad is not None for p in model.parameters())))
    before = copy.deepcopy(model)
    model(torch.arange(16)).backward()
    assert alive == [0, 0, 0]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(torch.equal(a, b) for a, b in zip(model.parameters(), before.parameters(), strict=True))
    moved = copy.deepcopy(model)
    optimizer.step()
    assert same(model, moved)


def test_a_schedule_of_learning_rates_is_followed():
    ordinary, during = Model(), Model()
    for model, in_backward in ((ordinary, False), (during, True)):
        optimizer = SGD(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        if in_backward:
            apply_in_backward(optimizer)
        for start in range(3):
            train(model, optimizer, 1, start=start)
            scheduler.step()
        assert scheduler.get_last_lr() == [0.0125]
    assert same(ordinary, during)


def test_a_loaded_state_counts():
    model = Model()
    optimizer = SGD(model.parameters(), lr=0.1)
    apply_in_backward(optimizer)
    state = optimizer.state_dict()
    state["param_groups"][0]["lr"] = 0.0
    optimizer.load_state_dict(state)
    train(model, optimizer, 1)
    assert same(model, Model())


def test_parameters_that_came_later_are_taken_in():
    ordinary, during = Model(), Model()
    for model, in_backward in ((ordinary, False), (during, True)):
        optimizer = RowwiseAdagrad(model.table.parameters(), lr=0.1)
        if in_backward:
            apply_in_backward(optimizer)
        optimizer.add_param_group({"params": list(model.layer.parameters()), "lr": 0.3})
        train(model, optimizer, 3)
        assert all(parameter.grad is None for parameter in model.parameters()) == in_backward
    assert same(ordinary, during)
    during(torch.arange(16)).backward()
    assert all(parameter.grad is None for parameter in during.parameters())  # now during backward, as the others


def test_frozen_parameters_are_left_alone_until_they_are_trained():
    model = Model()
    model.layer.requires_grad_(False)
    optimizer = SGD(model.parameters(), lr=0.1)
    apply_in_backward(optimizer)
    train(model, optimizer, 2)
    assert all(torch.equal(a, b) for a, b in zip(model.layer.parameters(), Model().layer.parameters(), strict=True))
    model.layer.requires_grad_(True)
    train(model, optimizer, 2)
    assert not torch.equal(model.layer.weight, Model().layer.weight)


def test_remove_goes_back_to_ordinary_steps():
    model = Model()
    optimizer = SGD(model.parameters(), lr=0.1)
    apply_in_backward(optimizer).remove()
    before = copy.deepcopy(model)
    model(torch.arange(16)).backward()
    assert same(model, before)
    assert all(parameter.grad is not None for parameter in model.parameters())
    optimizer.step()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert not same(model, before)


def test_a_copy_of_the_model_has_no_hooks():
    model = Model()
    apply_in_backward(SGD(model.parameters(), lr=0.1))
    other = copy.deepcopy(model)
    other(torch.arange(16)).backward()
    assert all(parameter.grad is not None for parameter in other.parameters())
    assert same(other, model)


def test_a_parameter_used_twice_is_stepped_once():
    model = Model()
    optimizer = RowwiseAdagrad(model.parameters(), lr=0.1)
    apply_in_backward(optimizer)
    (model(torch.arange(16)) + model(torch.arange(100, 116))).backward()
    assert [optimizer.state[parameter]["step"] for parameter in model.parameters()] == [1, 1, 1]


def test_parameters_that_a_clustering_exchanges_are_followed():
    """The colliding table has new parameters after a clustering."""
    results = []
    for in_backward in (False, True):
        table = cce.create_embedding("collide", 100, 8, num_params=400, seed=0)
        optimizer = SGD(table.parameters(), lr=0.1)
        schedule = cce.ClusterSchedule(table, optimizer, every=2)
        if in_backward:
            apply_in_backward(optimizer)
        for step in range(5):
            optimizer.zero_grad()
            table(torch.arange(step, 100, 3)).square().sum().backward()
            optimizer.step()
            schedule.step()
        results.append(table.to_dense())
    torch.testing.assert_close(*results, rtol=0, atol=0)
