"""All are ordinary torch optimizers, and their state follows clusterings."""

import copy
import pickle

import pytest
import torch
from torch import nn

import cce
from cce.optim import LazyAdam, RowwiseAdagrad
from helpers.optimizers import copies, equal, give_gradients, make_parameters

OPTIMIZERS = {
    "adagrad": lambda p: RowwiseAdagrad(p, lr=0.1),
    "adam": lambda p: LazyAdam(p, lr=0.01),
}
WITH_ROWS = {"adam": "exp_avg", "adagrad": "sum"}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_is_a_torch_optimizer(name):
    optimizer = OPTIMIZERS[name](make_parameters([(3, 2)]))
    assert isinstance(optimizer, torch.optim.Optimizer)
    assert str(optimizer).startswith(type(optimizer).__name__)
    assert set(optimizer.state_dict()) == {"state", "param_groups"}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_closure_is_called_with_gradients_on_and_its_loss_returned(name):
    (parameter,) = make_parameters([(3, 2)])
    optimizer = OPTIMIZERS[name]([parameter])
    before = parameter.detach().clone()

    def closure():
        optimizer.zero_grad()
        loss = parameter.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure) == before.square().sum()
    assert not torch.equal(parameter, before)
    assert optimizer.step() is None


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_group_has_its_own_learning_rate(name):
    first, second, frozen = make_parameters([(3, 2), (3, 2), (3, 2)])
    optimizer = OPTIMIZERS[name]([{"params": [first]}, {"params": [second, frozen], "lr": 0.0}])
    before = [parameter.detach().clone() for parameter in (first, second, frozen)]
    give_gradients([first, second], "sorted", seed=0)  # the third has none
    optimizer.step()
    assert not torch.equal(first, before[0])
    assert torch.equal(second, before[1])
    assert torch.equal(frozen, before[2])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_step_hooks_are_called(name):
    optimizer = OPTIMIZERS[name](make_parameters([(3, 2)]))
    called = []
    optimizer.register_step_pre_hook(lambda *_: called.append("before"))
    optimizer.register_step_post_hook(lambda *_: called.append("after"))
    optimizer.step()
    assert called == ["before", "after"]


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("through", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_goes_on_as_the_original(name, through):
    parameters = make_parameters([(5, 4), (7,)])
    optimizer = OPTIMIZERS[name](parameters)
    give_gradients(parameters, "sorted", seed=0)
    optimizer.step()
    other = through(optimizer)
    others = other.param_groups[0]["params"]
    for each, its in ((optimizer, parameters), (other, others)):
        give_gradients(its, "sorted", seed=1)
        each.step()
    assert equal(parameters, others)


# -- clusterings -------------------------------------------------------------------------------------------------------


def trained(name, *, sparse=True):
    table = cce.ClusteredEmbedding(300, 8, num_rows=10, sparse=sparse, generator=generator())
    optimizer = OPTIMIZERS[name](table.parameters())
    train(table, optimizer)
    return table, optimizer


def train(table, optimizer, steps=30):
    g = generator(5)
    target = torch.randn(5, 8, generator=g)[torch.arange(300) % 5]  # five kinds of ids
    for _ in range(steps):
        ids = torch.randint(0, 300, (64,), generator=g)
        optimizer.zero_grad()
        (table(ids) - target[ids]).square().sum().backward()
        optimizer.step()


def error(table):
    target = torch.randn(5, 8, generator=generator(5))[torch.arange(300) % 5]
    return (table.to_dense() - target).square().mean()


@pytest.mark.parametrize("name", WITH_ROWS)
def test_transfer_gives_a_clustered_row_the_mean_state_of_the_rows_its_ids_came_from(name):
    table, optimizer = trained(name)
    before = optimizer.state[table.codebook][WITH_ROWS[name]].clone()
    old = table.assignments(torch.arange(300))
    event = table.cluster(generator=generator(1))
    new = table.assignments(torch.arange(300))
    cce.repair_optimizer(optimizer, event)
    after = optimizer.state[table.codebook][WITH_ROWS[name]]
    assert after.shape == before.shape
    for column in range(4):
        for row in new[:, column].unique().tolist():
            came_from = old[new[:, column] == row, column] + column * 20
            torch.testing.assert_close(after[column * 20 + row], before[came_from].mean(0))


@pytest.mark.slow
def test_transfer_restarts_helpers_without_momentum_and_with_the_usual_size_of_gradients():
    for name, key in WITH_ROWS.items():
        table, optimizer = trained(name)
        before = optimizer.state[table.codebook][key].clone()
        cce.repair_optimizer(optimizer, event := table.cluster(generator=generator(1)))
        helpers = event.transfer.restarted
        after = optimizer.state[table.codebook][key][helpers]
        expected = before[helpers].mean(0) if name == "adagrad" else before.new_zeros(table.width)
        torch.testing.assert_close(after, expected.expand_as(after))


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_ROWS)
def test_reset_begins_anew_and_keep_keeps(name):
    for policy in ("reset", "keep"):
        table, optimizer = trained(name)
        before = copy.deepcopy(optimizer.state[table.codebook])
        cce.repair_optimizer(optimizer, table.cluster(generator=generator(1)), policy=policy)
        state = optimizer.state.get(table.codebook)
        if policy == "reset":
            assert not state
        else:
            assert state.keys() == before.keys()
            assert torch.equal(state[WITH_ROWS[name]], before[WITH_ROWS[name]])


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("policy", ["transfer", "reset", "keep"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_and_improves_with_a_schedule(name, policy, sparse):
    table = cce.ClusteredEmbedding(300, 8, num_rows=10, sparse=sparse, generator=generator())
    optimizer = OPTIMIZERS[name](table.parameters())
    schedule = cce.ClusterSchedule(table, optimizer, every=10, policy=policy)
    start = error(table)
    for _ in range(3):
        train(table, optimizer, 10)
        for _ in range(10):
            schedule.step()
    train(table, optimizer, 10)
    assert error(table) < start
    assert torch.isfinite(table.codebook).all()


def test_the_state_is_counted_in_bytes():
    table, optimizer = trained("adagrad")
    row = cce.summary(table, optimizer).to_dict()["tables"][0]
    assert row["optimizer_nbytes"] == 4 * len(table.codebook)


def test_optimizers_are_used_by_the_name_of_their_room():
    assert cce.optim.LazyAdam is LazyAdam
    assert cce.optim.RowwiseAdagrad is RowwiseAdagrad
    assert "optim" in dir(cce)


def test_parameters_keep_their_place_in_memory(path):
    parameters = make_parameters([(5, 4)])
    address = parameters[0].data_ptr()
    give_gradients(parameters, "sorted", seed=0)
    RowwiseAdagrad(parameters).step()
    assert parameters[0].data_ptr() == address
    assert isinstance(parameters[0], nn.Parameter)
    assert copies(parameters)[0].data_ptr() != address
