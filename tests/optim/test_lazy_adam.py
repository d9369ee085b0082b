"""Lazy Adam is torch's Adam for dense gradients, and torch's SparseAdam for sparse ones."""

from types import SimpleNamespace

import pytest
import torch

import cce
from cce.optim import LazyAdam, fused
from helpers.optimizers import SPARSE, copies, equal, give_gradients, make_parameters

SHAPES = [(40, 4), (30, 16), (20, 1), (50,), (6, 2, 5)]


def beside(kind, form, *, steps=5, dtype=torch.float32, **options):
    ours, theirs = make_parameters(SHAPES, dtype), make_parameters(SHAPES, dtype)
    optimizers = LazyAdam(ours, lr=0.05, **options), kind(theirs, lr=0.05, **options)
    for step in range(steps):
        for parameters, optimizer in zip((ours, theirs), optimizers, strict=True):
            give_gradients(parameters, form, seed=step)
            optimizer.step()
    return ours, theirs, *optimizers


@pytest.mark.parametrize("options", [{}, {"betas": (0.5, 0.9), "eps": 0.1}, {"maximize": True}])
def test_dense_gradients_equal_torch_s_adam_to_the_bit(options):
    ours, theirs, mine, torchs = beside(torch.optim.Adam, "dense", **options)
    assert equal(ours, theirs)
    assert not equal(ours, make_parameters(SHAPES))
    for a, b in zip(ours, theirs, strict=True):
        assert mine.state[a].keys() == torchs.state[b].keys()


@pytest.mark.parametrize("form", SPARSE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sparse_gradients_equal_torch_s_sparse_adam(path, form, dtype):
    ours, theirs, *_ = beside(torch.optim.SparseAdam, form, dtype=dtype, eps=1e-12)  # where torch adds it differs
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=1e-6)


def test_a_sparse_gradient_of_all_rows_is_a_dense_one(path):
    ours, theirs = make_parameters([(10, 3)]), make_parameters([(10, 3)])
    optimizers = LazyAdam(ours, lr=0.1), torch.optim.Adam(theirs, lr=0.1)
    for step in range(4):
        grad = torch.randn(10, 3, generator=torch.Generator().manual_seed(step))
        ours[0].grad, theirs[0].grad = grad.to_sparse(1), grad
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(ours[0], theirs[0])


def test_a_row_without_gradient_stays_where_it_is_and_keeps_its_moments(path):
    (parameter,) = make_parameters([(5, 3)])
    optimizer = LazyAdam([parameter], lr=0.1)
    for rows in ([0, 1], [1]):
        before = parameter.detach().clone()
        parameter.grad = torch.sparse_coo_tensor([rows], torch.ones(len(rows), 3), (5, 3), check_invariants=True)
        optimizer.step()
    assert torch.equal(parameter[0], before[0])
    assert not torch.equal(parameter[1], before[1])
    assert (optimizer.state[parameter]["exp_avg"][0] > 0).all()
    assert not optimizer.state[parameter]["exp_avg"][2:].any()


@pytest.mark.parametrize("options", [{"betas": (0.5, 0.9), "eps": 0.1}, {"maximize": True}])
def test_loops_give_what_plain_torch_gives(monkeypatch, options):
    made = []
    for plain in (False, True):
        if plain:
            monkeypatch.setattr(fused, "compiled", SimpleNamespace(available=False))
        ours = make_parameters(SHAPES)
        optimizer = LazyAdam(ours, lr=0.05, **options)
        for step in range(4):
            give_gradients(ours, "sorted", seed=step)
            optimizer.step()
        made.append(ours)
    for a, b in zip(*made, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_all_sparse_gradients_of_a_group_take_one_pass(runs):
    parameters = make_parameters(SHAPES)
    give_gradients(parameters, "sorted", seed=0)
    LazyAdam(parameters, lr=0.1).step()
    assert runs == [len(SHAPES)]


@pytest.mark.slow
def test_any_number_of_threads_gives_the_same_bits(num_threads):
    results = []
    for threads in (1, 2, 3):
        num_threads(threads)
        parameters = make_parameters([(60_000, 16), (30_000, 8)])  # enough values for several threads
        optimizer = LazyAdam(parameters, lr=0.1, weight_decay=0.01)
        for step in range(2):
            give_gradients(parameters, "sorted", seed=step)
            optimizer.step()
        results.append(copies(parameters))
    assert equal(results[0], results[1])
    assert equal(results[0], results[2])


@pytest.mark.slow
def test_trains_a_whole_model_of_sparse_tables_and_dense_layers():
    table = cce.create_embedding("cce-paper", 500, 16, num_params=800, sparse=True, seed=0)
    layer = torch.nn.Linear(16, 1)
    optimizer = LazyAdam([*table.parameters(), *layer.parameters()], lr=0.05, weight_decay=0.01)
    target = torch.arange(500) % 2
    losses = []
    for step in range(60):
        ids = torch.randint(500, (64,), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(layer(table(ids))[:, 0], target[ids].float())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])


def test_decay_shrinks_rows_by_steps_beside_what_the_gradient_does():
    """The gradients do not depend on the parameter, so decay is all that differs: the same factor for all rows."""
    made = []
    for weight_decay in (0.0, 0.4):
        (parameter,) = make_parameters([(30, 4)])
        optimizer = LazyAdam([parameter], lr=0.1, weight_decay=weight_decay)
        for _ in range(12):
            parameter.grad = torch.sparse_coo_tensor([[0]], torch.zeros(1, 4), (30, 4), check_invariants=True)
            optimizer.step()
        optimizer.catch_up()
        made.append(copies([parameter])[0])
    torch.testing.assert_close(made[1], made[0] / 1.04**12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, r"lr must be a finite number of at least 0, got -1\.0\."),
        ({"eps": -1.0}, r"eps must be a finite number of at least 0, got -1\.0\."),
        ({"weight_decay": float("nan")}, r"weight_decay must be a finite number of at least 0, got nan\."),
        ({"betas": (0.9, 1.0)}, r"betas must be two numbers in \[0, 1\), got \(0\.9, 1\.0\)\."),
        ({"betas": (0.9,)}, r"betas must be two numbers in \[0, 1\), got \(0\.9,\)\."),
    ],
)
def test_wrong_settings_are_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        LazyAdam(make_parameters([(2, 2)]), **options)


@pytest.mark.parametrize("form", ["dense", SPARSE[0]])
def test_it_goes_on_from_a_state_whose_step_is_a_number(form):
    (table,), (twin,) = make_parameters([(40, 4)]), make_parameters([(40, 4)])
    first, second = LazyAdam([table], lr=0.05), LazyAdam([twin], lr=0.05)
    for parameter, optimizer in ((table, first), (twin, second)):
        give_gradients([parameter], form, seed=0)
        optimizer.step()
    state = first.state_dict()
    state["state"][0]["step"] = 1
    first.load_state_dict(state)
    for parameter, optimizer in ((table, first), (twin, second)):
        give_gradients([parameter], form, seed=1)
        optimizer.step()
    assert torch.equal(table, twin)
