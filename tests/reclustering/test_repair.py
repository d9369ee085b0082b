"""An optimizer's state follows a clustering."""

import copy
import math

import pytest
import torch

import cce
from cce_lab.variants import FirstRowsEmbedding
from helpers.draws import seeded

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "adadelta": lambda p: torch.optim.Adadelta(p),
}
# how far one step can move a number: for Adam the sum of a geometric series, by Cauchy and Schwarz
BOUNDS = {
    "adagrad": 0.1,
    "rmsprop": 0.01 / math.sqrt(1 - 0.99),
    "adam": 0.01 * 0.1 / math.sqrt(0.001 * (1 - 0.81 / 0.999)),
    "adamw": 0.01 * 0.1 / math.sqrt(0.001 * (1 - 0.81 / 0.999)) + 1e-3,
    "amsgrad": 0.01 * 0.1 / math.sqrt(0.001 * (1 - 0.81 / 0.999)),
}


def make(kind=cce.embeddings.ClusteredEmbedding, **options):
    return kind(300, 8, num_rows=10, num_columns=4, generator=seeded(), **options)


def train(table, optimizer, steps=30, *, scale=1.0):
    g = seeded(5)
    target = torch.randn(5, 8, generator=g)[torch.arange(300) % 5]  # five kinds of ids
    for _ in range(steps):
        ids = torch.randint(0, 300, (64,), generator=g)
        optimizer.zero_grad()
        (scale * (table(ids) - target[ids]).square().sum()).backward()
        optimizer.step()


def loss_of(table):
    target = torch.randn(5, 8, generator=seeded(5))[torch.arange(300) % 5]
    return (table.to_dense() - target).square().mean()


def trained(name, **options):
    table = make(**options)
    optimizer = OPTIMIZERS[name](table.parameters())
    train(table, optimizer)
    return table, optimizer


def row_states(optimizer, parameter):
    state = optimizer.state[parameter]
    return {key: value.clone() for key, value in state.items() if torch.is_tensor(value) and value.dim()}


@pytest.mark.parametrize("name", ["momentum", "adagrad", "rmsprop", "adam", "adamw", "nadam", "adadelta"])
def test_a_clustered_row_gets_the_mean_state_of_the_rows_its_ids_came_from(name):
    table, optimizer = trained(name)
    before = row_states(optimizer, table.codebook)
    assert before
    old = table.assignments(torch.arange(300))
    event = table.cluster(generator=seeded(1))
    new = table.assignments(torch.arange(300))
    cce.reclustering.repair_optimizer(optimizer, event)
    for key, value in row_states(optimizer, table.codebook).items():
        for column in range(4):
            for row in new[:, column].unique().tolist():
                came_from = old[new[:, column] == row, column] + column * 20
                torch.testing.assert_close(value[column * 20 + row], before[key][came_from].mean(0))


def test_helper_rows_lose_their_momentum_and_keep_the_usual_size_of_gradients():
    table, optimizer = trained("adam")
    before = row_states(optimizer, table.codebook)
    cce.reclustering.repair_optimizer(optimizer, event := table.cluster(generator=seeded(1)))
    after, helpers = row_states(optimizer, table.codebook), event.transfer.restarted
    assert not after["exp_avg"][helpers].any()
    expected = before["exp_avg_sq"][helpers].mean(0).expand(len(helpers), -1)
    torch.testing.assert_close(after["exp_avg_sq"][helpers], expected)


def test_rows_of_no_id_are_like_the_average_row():
    """Thirty rows for five ids: most rows are dead after a clustering."""
    table = cce.embeddings.ClusteredEmbedding(5, 8, num_rows=30, generator=seeded())
    optimizer = torch.optim.Adagrad(table.parameters())
    table(torch.arange(5)).sum().backward()
    optimizer.step()
    before = row_states(optimizer, table.codebook)["sum"]
    event = table.cluster(generator=seeded(1))
    cce.reclustering.repair_optimizer(optimizer, event)
    after = row_states(optimizer, table.codebook)["sum"]
    used = set(event.transfer.new_rows.tolist()) | set(event.transfer.restarted.tolist())
    dead = [row for row in range(len(after)) if row not in used]
    assert dead
    torch.testing.assert_close(after[dead], before.mean(0).expand(len(dead), -1))


@pytest.mark.parametrize("policy", ["transfer", "reset"])
@pytest.mark.parametrize("name", list(BOUNDS))
def test_a_step_after_an_event_moves_no_number_beyond_the_optimizer_s_own_bound(name, policy):
    table, optimizer = trained(name)
    cce.reclustering.repair_optimizer(optimizer, table.cluster(generator=seeded(1)), policy=policy)
    before = table.codebook.detach().clone()
    train(table, optimizer, 1, scale=100.0)
    assert torch.isfinite(table.codebook).all()
    assert (table.codebook - before).abs().max() <= BOUNDS[name] * 1.001


@pytest.mark.slow
@pytest.mark.parametrize("name", ["momentum", "adagrad", "adam", "adadelta"])
@pytest.mark.parametrize("policy", ["transfer", "reset", "keep"])
def test_training_goes_on_and_improves_after_events(name, policy):
    table, optimizer = trained(name)
    for seed in range(3):
        cce.reclustering.repair_optimizer(optimizer, table.cluster(generator=seeded(seed)), policy=policy)
        train(table, optimizer, 10)
    assert torch.isfinite(table.to_dense()).all()
    assert all(torch.isfinite(state).all() for state in row_states(optimizer, table.codebook).values())
    if name != "adadelta":  # which hardly moves in so few steps
        assert loss_of(table) < loss_of(make())


@pytest.mark.parametrize("policy", ["transfer", "reset", "keep"])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_step_counter_may_be_a_number(policy, sparse):
    table = make(sparse=sparse)
    optimizer = (torch.optim.SparseAdam if sparse else torch.optim.Adam)(table.parameters(), lr=0.01)
    train(table, optimizer, 5)
    state = optimizer.state_dict()
    state["state"][0]["step"] = 5
    optimizer.load_state_dict(state)
    cce.reclustering.repair_optimizer(optimizer, table.cluster(generator=seeded(1)), policy=policy)
    assert float(optimizer.state[table.codebook].get("step", 0)) == (0 if policy == "reset" else 5)
    train(table, optimizer, 2)
    assert float(optimizer.state[table.codebook]["step"]) == (2 if policy == "reset" else 7)


EVERY = {
    **OPTIMIZERS,
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
    "rprop": lambda p: torch.optim.Rprop(p),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.01),
    "adamax": lambda p: torch.optim.Adamax(p),
    "radam": lambda p: torch.optim.RAdam(p),
}


@pytest.mark.parametrize("name", list(EVERY))
def test_after_a_reset_a_step_is_that_of_a_new_optimizer(name):
    table = make()
    optimizer = EVERY[name](table.parameters())
    train(table, optimizer, 5)
    cce.reclustering.repair_optimizer(optimizer, table.cluster(generator=seeded(1)), policy="reset")
    twin = copy.deepcopy(table)
    train(table, optimizer, 2)
    train(twin, EVERY[name](twin.parameters()), 2)
    assert torch.equal(table.codebook, twin.codebook)


@pytest.mark.parametrize("name", list(EVERY))
def test_replaced_parameters_are_stepped_as_by_a_new_optimizer(name):
    table = cce.embeddings.CollidingEmbedding(300, 8, num_rows=10, thin_dim=2, generator=seeded())
    optimizer = EVERY[name](table.parameters())
    train(table, optimizer, 5)
    cce.reclustering.repair_optimizer(optimizer, table.cluster(generator=seeded(1)))
    twin = copy.deepcopy(table)
    train(table, optimizer, 2)
    train(twin, EVERY[name](twin.parameters()), 2)
    assert torch.equal(table.codebook, twin.codebook)


def test_reset_gives_adagrad_its_first_accumulator_back():
    table = make()
    optimizer = torch.optim.Adagrad(table.parameters(), initial_accumulator_value=0.25)
    train(table, optimizer, 3)
    cce.reclustering.repair_optimizer(optimizer, table.cluster(), policy="reset")
    assert torch.equal(optimizer.state[table.codebook]["sum"], torch.full_like(table.codebook, 0.25))


def test_keep_touches_nothing():
    table, optimizer = trained("adam")
    before = row_states(optimizer, table.codebook)
    cce.reclustering.repair_optimizer(optimizer, table.cluster(), policy="keep")
    after = row_states(optimizer, table.codebook)
    assert all(torch.equal(value, after[key]) for key, value in before.items())


def test_state_stays_in_its_place_in_memory():
    table, optimizer = trained("adam")
    address = optimizer.state[table.codebook]["exp_avg"].data_ptr()
    cce.reclustering.repair_optimizer(optimizer, table.cluster())
    assert optimizer.state[table.codebook]["exp_avg"].data_ptr() == address


@pytest.mark.slow
@pytest.mark.parametrize("name", ["momentum", "adagrad", "adam", "adadelta"])
@pytest.mark.parametrize("policy", ["transfer", "reset", "keep"])
def test_a_codebook_that_changed_its_size(name, policy):
    table, optimizer = trained(name, kind=FirstRowsEmbedding, first_factor=3)
    cce.reclustering.repair_optimizer(optimizer, table.cluster(generator=seeded(1)), policy=policy)
    assert table.codebook.shape == (80, 2)
    train(table, optimizer, 5)
    assert all(len(state) == 80 for state in row_states(optimizer, table.codebook).values())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's own Adagrad, on any sparse gradient
def test_sparse_adam_and_sparse_momentum():
    for make_optimizer in (
        lambda p: torch.optim.SparseAdam(p, lr=0.01),
        lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
        lambda p: torch.optim.Adagrad(p, lr=0.01),
    ):
        table = make(sparse=True)
        optimizer = make_optimizer(list(table.parameters()))
        train(table, optimizer, 5)
        cce.reclustering.repair_optimizer(optimizer, table.cluster(generator=seeded(1)))
        train(table, optimizer, 5)
        assert torch.isfinite(table.to_dense()).all()


class Unknown(torch.optim.Optimizer):
    """One that nobody has seen: a memory of the parameter's shape, one of its rows, and a word."""

    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if not self.state[p]:
                    rows = torch.arange(len(p), dtype=torch.float)
                    self.state[p] = {"memory": torch.randn(p.shape), "row_size": rows, "word": "x", "num": 3}


def test_an_unknown_optimizer_s_rows_follow_too():
    table = make()
    optimizer = Unknown(table.parameters())
    optimizer.step()
    old = table.assignments(torch.arange(300))
    event = table.cluster(generator=seeded(1))
    cce.reclustering.repair_optimizer(optimizer, event)
    state, new = optimizer.state[table.codebook], table.assignments(torch.arange(300))
    row = int(new[0, 0])
    assert state["row_size"][row] == pytest.approx(float(old[new[:, 0] == row, 0].double().mean()), rel=1e-5)
    assert not state["memory"][event.transfer.restarted].any()
    assert (state["word"], state["num"]) == ("x", 3)
    cce.reclustering.repair_optimizer(optimizer, event, policy="reset")
    assert table.codebook not in optimizer.state  # as for a parameter it has never seen


def test_an_optimizer_that_does_not_know_the_table_is_left_alone():
    table, other = make(), torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(other.parameters())
    cce.reclustering.repair_optimizer(optimizer, table.cluster())
    assert not optimizer.state


def test_gradients_of_the_old_rows_are_dropped():
    table = make()
    table(torch.arange(10)).sum().backward()
    table.cluster()
    assert table.codebook.grad is None
