"""What goes through compiled loops, that it is checked first, and that threads change no bit."""

import pytest
import torch
from torch import nn

from cce import compiled
from cce.optim import LazyAdam, RowwiseAdagrad, fused
from cce.optim.fused import Fused
from helpers.optimizers import FORMS, equal, give_gradients, make_parameters

pytestmark = pytest.mark.skipif(not compiled.available, reason="numba is not installed")


def sparse_gradient(parameter, rows, **options):
    rows = torch.tensor([rows])
    values = torch.ones(rows.shape[1], *parameter.shape[1:])
    return torch.sparse_coo_tensor(rows, values, parameter.shape, check_invariants=False, **options)


def test_ordinary_tensors_are_taken():
    parameter = nn.Parameter(torch.zeros(5, 4))
    assert Fused().add(parameter, torch.zeros(5, 4), torch.zeros(5))
    assert Fused().add(parameter, sparse_gradient(parameter, [1, 2]), torch.zeros(5))
    assert Fused().add(nn.Parameter(torch.tensor(1.0)), torch.tensor(1.0), torch.zeros(5))


def test_others_are_left_to_torch():
    class Special(torch.Tensor):
        pass

    plain, across = torch.zeros(5, 4), torch.zeros(4, 5).t()
    both = torch.sparse_coo_tensor([[0], [1]], [1.0], (5, 4), check_invariants=True)  # an entry for each number
    spread = torch.sparse_coo_tensor([[0, 1]], torch.ones(1, 4).expand(2, 4), (5, 4), check_invariants=True)
    for parameter, grad in (
        (plain.bfloat16(), plain.bfloat16()),
        (plain.as_subclass(Special), plain),
        (plain.to("meta"), plain.to("meta")),
        (across, plain),
        (plain, across),
        (plain, plain.double()),
        (plain, both),
        (plain, spread),
    ):
        assert not Fused().add(parameter, grad, torch.zeros(5))


@pytest.mark.parametrize("kind", [LazyAdam, RowwiseAdagrad])
def test_gradients_of_other_forms_give_the_same(kind):
    """A table that is a transposed view, an expanded gradient, and one with an entry for each number."""
    grads = [
        torch.ones(5, 4),
        torch.sparse_coo_tensor([[0, 1, 3]], torch.ones(1, 4).expand(3, 4), (5, 4), check_invariants=True),
        torch.sparse_coo_tensor([[0, 0, 3], [0, 2, 1]], torch.tensor([1.0, 2.0, 3.0]), (5, 4), check_invariants=True),
    ]
    for start in (torch.zeros(5, 4), torch.zeros(4, 5).t()):
        for grad in grads:
            parameter, expected = nn.Parameter(start.clone()), nn.Parameter(torch.zeros(5, 4))
            parameter.grad, expected.grad = grad, grad.to_dense()
            for each in (parameter, expected):
                kind([each], lr=0.1).step()
            torch.testing.assert_close(parameter.detach(), expected.detach())
            assert parameter.any()


@pytest.mark.parametrize("kind", [LazyAdam, RowwiseAdagrad])
@pytest.mark.parametrize("row", [-1, 5, 2**40])
def test_a_row_that_is_not_there_is_rejected_and_nothing_written(kind, row):
    good, bad, other = nn.Parameter(torch.zeros(5, 4)), nn.Parameter(torch.zeros(5, 4)), nn.Parameter(torch.zeros(3))
    good.grad, bad.grad = sparse_gradient(good, [0, 1]), sparse_gradient(bad, [0, row, 2], is_coalesced=True)
    other.grad = torch.ones(3)
    with pytest.raises(IndexError, match=rf"rows of a sparse gradient must lie in \[0, 5\), got {row}\."):
        kind([good, bad, other], lr=0.1).step()
    assert not good.any()
    assert not bad.any()
    assert not other.any()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [LazyAdam, RowwiseAdagrad])
def test_the_same_bits_on_any_number_of_threads(kind, form, num_threads, monkeypatch):
    monkeypatch.setattr(fused, "PARALLEL", 0)
    shapes = [(700, 4), (3, 16), (900, 5), (1, 1), (400,)]
    found = []
    for count in (1, 2, 3, 8):
        num_threads(count)
        parameters = make_parameters(shapes)
        optimizer = kind(parameters, lr=0.1)
        for step in range(3):
            give_gradients(parameters, form, seed=step)
            optimizer.step()
        found.append(parameters)
    assert all(equal(found[0], others) for others in found[1:])


def test_large_steps_are_spread_over_threads(num_threads, monkeypatch):
    ranges = []
    monkeypatch.setattr(
        fused, "parallel_for", lambda task, count: ranges.append([task(index) for index in range(count)])
    )
    num_threads(2)
    for num_rows in (fused.PARALLEL // 16 - 1, fused.PARALLEL // 16):
        parameter = nn.Parameter(torch.zeros(num_rows, 16))
        parameter.grad = sparse_gradient(parameter, list(range(num_rows)))
        RowwiseAdagrad([parameter], lr=1.0).step()
        assert (parameter == -1).all()
    assert len(ranges) == 1
    assert len(ranges[0]) == 2 * fused.RANGES_PER_THREAD


@pytest.mark.parametrize("kind", [LazyAdam, RowwiseAdagrad])
def test_autograd_knows_that_parameters_were_written_to(kind):
    """A second backward through the old graph must not use the new values."""
    parameter = nn.Parameter(torch.ones(5, 4))
    loss = parameter.square().sum()
    version = parameter._version
    parameter.grad = sparse_gradient(parameter, [1])
    kind([parameter], lr=0.1).step()
    assert parameter._version == version + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_types_of_one_group_may_differ(runs):
    parameters = make_parameters([(5, 4), (6, 4)]) + make_parameters([(5, 4)], torch.float64)
    parameters += make_parameters([(5, 4)], torch.bfloat16)
    before = [parameter.detach().clone() for parameter in parameters]
    give_gradients(parameters, "sorted", seed=0)
    RowwiseAdagrad(parameters, lr=0.1).step()
    assert runs == [2, 1]
    assert not any(torch.equal(a, b) for a, b in zip(parameters, before, strict=True))


def test_nothing_is_fused_while_a_graph_is_traced(monkeypatch):
    assert fused.available()
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not fused.available()
