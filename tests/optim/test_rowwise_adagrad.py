"""Row-wise Adagrad beside its formula, and beside torch's Adagrad where rows have one number."""

import copy

import pytest
import torch
from torch import nn

from cce.optim import RowwiseAdagrad
from helpers.optimizers import FORMS, SPARSE, copies, equal, give_gradients, make_parameters

SHAPES = [(40, 4), (30, 16), (20, 1), (25, 3), (12, 23), (50,), (6, 2, 5), (1, 64), (0, 4)]
NARROW = [(40, 1), (50,), (7, 1, 1), (1,)]


def dense_gradient(parameter):
    return parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad


def reference_step(values, sums, grad, *, rate, eps=1e-10):
    """The formula, row by row."""
    for row in range(len(values)):
        if grad[row].any():
            sums[row] += grad[row].square().mean()
            values[row] -= rate * grad[row] / (sums[row].sqrt() + eps)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_formula(path, form, dtype):
    parameters = make_parameters(SHAPES, dtype)
    expected = [parameter.detach().clone() for parameter in parameters]
    sums = [torch.full(parameter.shape[:1], 0.5, dtype=dtype) for parameter in parameters]
    optimizer = RowwiseAdagrad(parameters, lr=0.1, lr_decay=0.3, eps=1e-3, initial_accumulator_value=0.5)
    for step in range(3):
        give_gradients(parameters, form, seed=step)
        optimizer.step()
        for parameter, value, total in zip(parameters, expected, sums, strict=True):
            reference_step(value, total, dense_gradient(parameter), rate=0.1 / (1 + step * 0.3), eps=1e-3)
    for parameter, value, total in zip(parameters, expected, sums, strict=True):
        torch.testing.assert_close(parameter.detach(), value)
        torch.testing.assert_close(optimizer.state[parameter]["sum"], total)
        assert optimizer.state[parameter]["step"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "options",
    [{}, {"lr_decay": 0.5, "eps": 1e-2}, {"maximize": True, "initial_accumulator_value": 0.1}],
    ids=["defaults", "decay", "maximize"],
)
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # from torch's own Adagrad
def test_rows_of_one_number_equal_torch_s_adagrad(path, form, dtype, options):
    """To the bit where gradients are dense. Else to the last digit: torch's roots are not always rounded correctly."""
    ours, theirs = make_parameters(NARROW, dtype), make_parameters(NARROW, dtype)
    optimizers = RowwiseAdagrad(ours, lr=0.1, **options), torch.optim.Adagrad(theirs, lr=0.1, **options)
    for step in range(4):
        for parameters, optimizer in zip((ours, theirs), optimizers, strict=True):
            give_gradients(parameters, form, seed=step)
            optimizer.step()
    if form == "dense":
        assert equal(ours, theirs)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=8 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)
    assert not equal(ours, make_parameters(NARROW, dtype))


def test_weight_decay_is_none_of_the_accumulator_s():
    parameter = nn.Parameter(torch.full((2, 4), 2.0))
    parameter.grad = torch.full((2, 4), 3.0)
    optimizer = RowwiseAdagrad([parameter], lr=0.5, weight_decay=1.5)  # s = 9, p = (2 - 0.5) / 1.75
    optimizer.step()
    assert optimizer.state[parameter]["sum"].tolist() == [9, 9]
    torch.testing.assert_close(parameter.detach(), torch.full((2, 4), 1.5 / 1.75))


def test_eps_is_added_outside_of_the_root(path):
    parameter = nn.Parameter(torch.zeros(1, 4))
    parameter.grad = torch.full((1, 4), 3.0)
    RowwiseAdagrad([parameter], lr=1.0, eps=1.0).step()
    torch.testing.assert_close(parameter.detach(), torch.full((1, 4), -3 / (3 + 1)))


@pytest.mark.parametrize("form", ["sorted", "unsorted"])
def test_sparse_gradients_give_the_bits_of_dense_ones_in_loops(runs, form):
    shapes = [(40, 4), (30, 16), (12, 23)]
    sparse, dense = make_parameters(shapes), make_parameters(shapes)
    optimizers = RowwiseAdagrad(sparse, lr=0.1), RowwiseAdagrad(dense, lr=0.1)
    for step in range(3):
        give_gradients(sparse, form, seed=step)
        give_gradients(dense, form, seed=step)
        for parameter in dense:
            parameter.grad = parameter.grad.to_dense()
        for optimizer in optimizers:
            optimizer.step()
    assert equal(sparse, dense)
    assert runs == [3] * 6


@pytest.mark.parametrize("form", SPARSE)
def test_all_parameters_of_a_group_take_one_pass(runs, form):
    parameters = make_parameters(SHAPES)
    give_gradients(parameters, form, seed=0)
    RowwiseAdagrad(parameters).step()
    assert runs == [len(SHAPES)]


def test_a_sorted_gradient_is_not_coalesced_again(monkeypatch, runs):
    parameters = make_parameters([(40, 4)])
    give_gradients(parameters, "sorted", seed=0)
    assert not parameters[0].grad.is_coalesced()
    monkeypatch.setattr(torch.Tensor, "coalesce", None)
    RowwiseAdagrad(parameters).step()
    assert runs == [1]


def test_the_state_is_one_number_for_each_row():
    parameters = make_parameters(SHAPES)
    give_gradients(parameters, "sorted", seed=0)
    optimizer = RowwiseAdagrad(parameters)
    optimizer.step()
    assert [tuple(optimizer.state[p]["sum"].shape) for p in parameters] == [shape[:1] for shape in SHAPES]


def test_a_single_number_is_a_row():
    ours, theirs = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.tensor(2.0))
    for parameter, kind in ((ours, RowwiseAdagrad), (theirs, torch.optim.Adagrad)):
        parameter.grad = torch.tensor(0.3)
        kind([parameter], lr=0.1).step()
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("form", ["dense", "repeated"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_parameters_of_16_bits_have_float32_accumulators(form, dtype):
    """In bfloat16 a sum of ones stops at 256."""
    ours, exact = make_parameters(SHAPES, dtype), make_parameters(SHAPES, dtype)
    exact = [nn.Parameter(parameter.detach().double()) for parameter in exact]
    optimizers = RowwiseAdagrad(ours, lr=0.1), RowwiseAdagrad(exact, lr=0.1)
    for step in range(2):
        give_gradients(ours, form, seed=step)
        for parameter, other in zip(ours, exact, strict=True):
            other.grad = dense_gradient(parameter).double()
            parameter.grad = parameter.grad.coalesce() if form == "repeated" else parameter.grad
            other.grad = parameter.grad.to_dense().double()
        for optimizer in optimizers:
            optimizer.step()
    for parameter, other in zip(ours, exact, strict=True):
        assert optimizers[0].state[parameter]["sum"].dtype is torch.float32
        torch.testing.assert_close(optimizers[0].state[parameter]["sum"], optimizers[1].state[other]["sum"].float())
        torch.testing.assert_close(parameter.double(), other.double(), rtol=0.02, atol=0.02)


def test_loading_a_state_does_not_round_the_accumulators_of_16_bits():
    parameters = make_parameters([(5, 4), (3, 4)], torch.bfloat16)
    optimizer = RowwiseAdagrad(parameters)
    give_gradients(parameters[:1], "dense", seed=0)  # the second has no state as yet
    optimizer.step()
    resumed = RowwiseAdagrad(copies(parameters))
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    first = resumed.param_groups[0]["params"][0]
    assert torch.equal(resumed.state[first]["sum"], optimizer.state[parameters[0]]["sum"])
    assert resumed.state[first]["sum"].dtype is torch.float32
    assert (resumed.state[first]["sum"] != resumed.state[first]["sum"].bfloat16()).any()


@pytest.mark.parametrize("form", ["dense", "sorted"])
def test_a_loaded_state_goes_on_as_the_first_would_have(path, form):
    ours = make_parameters(SHAPES)
    optimizer = RowwiseAdagrad(ours, lr=0.1, lr_decay=0.5)
    give_gradients(ours, form, seed=0)
    optimizer.step()
    again = copies(ours)
    resumed = RowwiseAdagrad(again, lr=9.0)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for parameters, each in ((ours, optimizer), (again, resumed)):
        give_gradients(parameters, form, seed=1)
        each.step()
    assert equal(ours, again)


def test_a_state_of_torch_s_adagrad_is_taken_over_for_rows_of_one_number_and_rejected_for_others():
    for shape in ((5,), (5, 5)):
        theirs = make_parameters([shape])
        other = torch.optim.Adagrad(theirs, lr=0.1, lr_decay=0.5)
        give_gradients(theirs, "dense", seed=0)
        other.step()
        ours = copies(theirs)
        optimizer = RowwiseAdagrad(ours)
        optimizer.load_state_dict(copy.deepcopy(other.state_dict()))
        for parameters in (ours, theirs):
            give_gradients(parameters, "dense", seed=1)
        other.step()
        if shape == (5,):
            optimizer.step()
            assert equal(ours, theirs)
        else:
            with pytest.raises(ValueError, match=r"sum must have a value for each row, \(5,\), got \(5, 5\)\."):
                optimizer.step()


def test_a_group_added_later_starts_at_its_own_accumulator_value():
    first, second = make_parameters([(4, 4), (3, 4)])
    optimizer = RowwiseAdagrad([first], initial_accumulator_value=1.0)
    optimizer.add_param_group({"params": [second], "initial_accumulator_value": 2.0})
    for parameter in (first, second):
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert optimizer.state[first]["sum"].tolist() == [1.0] * 4
    assert optimizer.state[second]["sum"].tolist() == [2.0] * 3


@pytest.mark.parametrize("name", ["lr", "eps", "lr_decay", "weight_decay", "initial_accumulator_value"])
def test_settings_below_zero_are_rejected(name):
    with pytest.raises(ValueError, match=rf"{name} must be a finite number of at least 0, got -0\.5\."):
        RowwiseAdagrad(make_parameters([(2, 2)]), **{name: -0.5})
