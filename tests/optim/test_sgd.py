"""Our SGD is torch's SGD, to the bit."""

import copy

import pytest
import torch
from torch import nn

import cce
from cce.optim import SGD
from helpers.optimizers import FORMS, SPARSE, copies, equal, give_gradients, make_parameters

SHAPES = [(40, 4), (30, 16), (20, 1), (25, 3), (12, 23), (50,), (6, 2, 5), (1, 64), (0, 4)]
OPTIONS = {
    "momentum": {"momentum": 0.9},
    "dampening": {"momentum": 0.9, "dampening": 0.2},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "maximize": {"momentum": 0.9, "maximize": True},
}


def train_beside_torch(form, *, dtype=torch.float32, steps=3, torch_form=None, shapes=SHAPES, **options):
    """Both after some steps on the same gradients: the parameters, and the optimizers."""
    ours, theirs = make_parameters(shapes, dtype), make_parameters(shapes, dtype)
    optimizers = SGD(ours, lr=0.1, **options), torch.optim.SGD(theirs, lr=0.1, **options)
    for step in range(steps):
        give_gradients(ours, form, seed=step)
        give_gradients(theirs, torch_form or form, seed=step)
        for optimizer in optimizers:
            optimizer.step()
    return ours, theirs, *optimizers


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_equals_torch_to_the_bit(path, form, dtype):
    """Except that torch rounds twice for numbers without rows whose gradient is marked as coalesced."""
    shapes = [shape for shape in SHAPES if form != "coalesced" or len(shape) > 1]
    ours, theirs, *_ = train_beside_torch(form, dtype=dtype, shapes=shapes)
    assert equal(ours, theirs)
    assert not equal(ours, make_parameters(shapes, dtype))


@pytest.mark.parametrize("form", ["dense", "sorted"])
def test_maximize_equals_torch_to_the_bit(path, form):
    ours, theirs, *_ = train_beside_torch(form, maximize=True)
    assert equal(ours, theirs)


@pytest.mark.parametrize("name", OPTIONS)
def test_options_with_dense_gradients_equal_torch_to_the_bit(name):
    ours, theirs, mine, torchs = train_beside_torch("dense", **OPTIONS[name])
    assert equal(ours, theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert mine.state[a].keys() == torchs.state[b].keys()


@pytest.mark.parametrize("form", SPARSE)
@pytest.mark.parametrize("name", OPTIONS)
def test_momentum_with_sparse_gradients_is_torch_s(name, form):
    """torch's sparse buffer grows at every step; the sums are those of a dense one."""
    ours, theirs, mine, torchs = train_beside_torch(form, steps=4, **OPTIONS[name])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)
        assert not mine.state[a]["momentum_buffer"].is_sparse
        torch.testing.assert_close(mine.state[a]["momentum_buffer"], torchs.state[b]["momentum_buffer"].to_dense())


@pytest.mark.parametrize("name", OPTIONS)
def test_momentum_with_sparse_gradients_equals_torch_s_dense_to_the_bit(name):
    ours, theirs, *_ = train_beside_torch("sorted", steps=4, torch_form="dense", **OPTIONS[name])
    assert equal(ours, theirs)


def test_weight_decay_is_nearly_torch_s_where_a_step_of_it_is_small():
    """Ours is implicit: the difference is of second order in lr · weight_decay."""
    ours, theirs, *_ = train_beside_torch("dense", weight_decay=1e-4)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
    assert not equal(ours, train_beside_torch("dense")[0])


def test_a_row_without_gradient_goes_on_by_its_momentum():
    parameter = nn.Parameter(torch.zeros(3, 4))
    optimizer = SGD([parameter], lr=1.0, momentum=0.5)
    for row in (0, 1):
        parameter.grad = torch.sparse_coo_tensor([[row]], torch.ones(1, 4), (3, 4), check_invariants=True)
        optimizer.step()
    assert parameter[:, 0].tolist() == [-1.5, -1.0, 0.0]


def test_all_sparse_gradients_of_a_group_take_one_pass(runs):
    parameters = make_parameters(SHAPES)
    give_gradients(parameters, "sorted", seed=0)
    SGD(parameters, lr=0.1).step()
    assert runs == [len(SHAPES)]


def test_only_rows_with_a_gradient_are_touched(path):
    (parameter,) = make_parameters([(100, 4)])
    before = parameter.detach().clone()
    parameter.grad = torch.sparse_coo_tensor([[3, 70]], torch.ones(2, 4), (100, 4), check_invariants=True)
    SGD([parameter], lr=0.5).step()
    moved = (parameter != before).any(1)
    assert moved.nonzero().flatten().tolist() == [3, 70]
    torch.testing.assert_close(parameter[[3, 70]], before[[3, 70]] - 0.5)


def test_trains_a_table_as_torch_does():
    """Gradients as our own backward makes them."""
    tables = [cce.create_embedding("cce-paper", 500, 16, num_params=800, sparse=True, seed=0) for _ in range(2)]
    optimizers = [kind(table.parameters(), lr=0.1) for kind, table in zip((SGD, torch.optim.SGD), tables, strict=True)]
    for step in range(5):
        ids = torch.randint(0, 500, (64,), generator=torch.Generator().manual_seed(step))
        for table, optimizer in zip(tables, optimizers, strict=True):
            optimizer.zero_grad()
            table(ids).square().sum().backward()
            assert table.codebook.grad.is_sparse
            optimizer.step()
    assert torch.equal(tables[0].codebook, tables[1].codebook)
    assert not torch.equal(
        tables[0].codebook, cce.create_embedding("cce-paper", 500, 16, num_params=800, seed=0).codebook
    )


def test_the_learning_rate_may_be_a_tensor(path):
    ours = make_parameters(SHAPES)
    theirs = copies(ours)
    for parameters, rate in ((ours, torch.tensor(0.25)), (theirs, 0.25)):
        give_gradients(parameters, "sorted", seed=0)
        SGD(parameters, lr=rate).step()
    assert equal(ours, theirs)


def test_a_loaded_state_goes_on_as_the_first_would_have():
    ours, _, optimizer, _ = train_beside_torch("sorted", momentum=0.9)
    again = copies(ours)
    resumed = SGD(again, lr=9.0)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for parameters, each in ((ours, optimizer), (again, resumed)):
        give_gradients(parameters, "sorted", seed=9)
        each.step()
    assert equal(ours, again)


def test_a_state_of_torch_s_own_is_taken_over_sparse_buffers_included():
    _, theirs, _, optimizer = train_beside_torch("sorted", momentum=0.9)
    ours = copies(theirs)
    resumed = SGD(ours, lr=0.1, momentum=0.9)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for parameters, each in ((ours, resumed), (theirs, optimizer)):
        give_gradients(parameters, "sorted", seed=9)
        each.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, r"lr must be a finite number of at least 0, got -1\.0\."),
        ({"lr": float("nan")}, r"lr must be a finite number of at least 0, got nan\."),
        ({"lr": torch.ones(2)}, r"lr must be one number, got a tensor of shape \(2,\)\."),
        ({"momentum": -0.5}, r"momentum must be a finite number of at least 0, got -0\.5\."),
        ({"weight_decay": -0.5}, r"weight_decay must be a finite number of at least 0, got -0\.5\."),
        ({"nesterov": True}, r"nesterov needs momentum > 0 and dampening 0, got momentum=0 and dampening=0\."),
    ],
)
def test_wrong_settings_are_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        SGD(make_parameters([(2, 2)]), **options)
