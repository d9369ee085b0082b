"""Weight decay with sparse gradients is that of dense ones, whatever rows are visited when."""

import copy
import math

import pytest
import torch
from torch import nn

import cce
from cce.optim import LazyAdam, RowwiseAdagrad, decay
from helpers.optimizers import copies, equal, give_gradients, make_parameters

NUM_ROWS, STEPS = 40, 50


def visits(pattern, step, seed=0):
    """The rows of a step."""
    g = torch.Generator().manual_seed(1000 * seed + step)
    if pattern == "frequent and rare":
        rows = (torch.rand(8, generator=g).square() * NUM_ROWS).long()
    elif pattern == "in turns":
        rows = torch.arange(4) + 4 * step
    elif pattern == "once":
        rows = torch.tensor([step]) if step < NUM_ROWS // 2 else torch.tensor([0])
    else:
        rows = torch.randint(NUM_ROWS, (3 if step % 7 else 0,), generator=g)
    return torch.unique(rows % NUM_ROWS)


def trained(kind, form, *, weight_decay, pattern="at random", dtype=torch.float32, shape=(NUM_ROWS, 6), lr=0.1):
    """The parameter after steps whose learning rate falls, with all decay applied."""
    (parameter,) = make_parameters([shape], dtype)
    optimizer = kind([parameter], lr=lr, weight_decay=weight_decay)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = lr * (1 - step / STEPS)
        rows = visits(pattern, step)
        values = torch.randn(len(rows), *shape[1:], generator=torch.Generator().manual_seed(step)).to(dtype)
        grad = torch.sparse_coo_tensor(rows.unsqueeze(0), values, shape, check_invariants=True)
        parameter.grad = grad if form == "sparse" else grad.to_dense()
        optimizer.step()
    optimizer.catch_up()
    return parameter.detach()


@pytest.mark.slow
@pytest.mark.parametrize("weight_decay", [1e-4, 0.01, 1.0, 30.0])
@pytest.mark.parametrize("pattern", ["at random", "frequent and rare", "in turns", "once"])
def test_lazy_decay_is_the_decay_of_dense_gradients(path, pattern, weight_decay):
    sparse, dense = (
        trained(RowwiseAdagrad, form, weight_decay=weight_decay, pattern=pattern) for form in ("sparse", "dense")
    )
    torch.testing.assert_close(sparse, dense, rtol=2e-5, atol=1e-7)
    assert not torch.allclose(dense, trained(RowwiseAdagrad, "dense", weight_decay=0.0, pattern=pattern), rtol=1e-5)


def test_in_float64_it_is_the_same_to_twelve_digits(path):
    sparse, dense = (
        trained(RowwiseAdagrad, form, weight_decay=0.5, dtype=torch.float64) for form in ("sparse", "dense")
    )
    torch.testing.assert_close(sparse, dense, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("shape", [(NUM_ROWS,), (NUM_ROWS, 1), (NUM_ROWS, 23), (NUM_ROWS, 2, 3)])
def test_rows_of_any_shape(path, shape):
    sparse, dense = (trained(RowwiseAdagrad, form, weight_decay=0.5, shape=shape) for form in ("sparse", "dense"))
    torch.testing.assert_close(sparse, dense, rtol=2e-5, atol=1e-7)


def test_the_step_is_implicit_and_shrinks_at_any_rate():
    for form in ("dense", "sparse"):
        parameter = nn.Parameter(torch.full((2, 3), 4.0))
        grad = torch.full((2, 3), 2.0)
        parameter.grad = grad if form == "dense" else grad.to_sparse(1)
        optimizer = RowwiseAdagrad([parameter], lr=0.5, weight_decay=6.0)
        optimizer.step()
        optimizer.catch_up()
        torch.testing.assert_close(parameter.detach(), torch.full((2, 3), (4.0 - 0.5 * 1.0) / (1 + 0.5 * 6.0)))
    far = nn.Parameter(torch.ones(2))
    far.grad = torch.zeros(2)
    RowwiseAdagrad([far], lr=1.0, weight_decay=1e6).step()
    assert (far > 0).all()
    assert (far < 1e-5).all()


def test_a_row_decays_by_steps_and_not_by_visits():
    """Rows with gradients of zero: one visited at every step, one every tenth, one at the first alone."""
    parameter = nn.Parameter(torch.ones(4, 5))
    optimizer = RowwiseAdagrad([parameter], lr=0.01, weight_decay=0.1)
    for step in range(100):
        rows = [0, 1] if step % 10 == 0 else [0]
        rows += [2] if step == 0 else []
        parameter.grad = torch.sparse_coo_tensor([rows], torch.zeros(len(rows), 5), (4, 5), check_invariants=True)
        optimizer.step()
    optimizer.catch_up()
    torch.testing.assert_close(parameter.detach(), torch.full((4, 5), (1 + 0.001) ** -100.0), rtol=1e-5, atol=0)


def test_a_table_that_no_batch_uses_decays_as_well():
    used, unused, frozen = make_parameters([(5, 2), (5, 2), (5, 2)])
    frozen.requires_grad_(False)
    before = unused.detach().clone(), frozen.detach().clone()
    optimizer = RowwiseAdagrad([used, unused, frozen], lr=0.1, weight_decay=0.5)
    for step in range(4):
        give_gradients([used], "sorted", seed=step)
        optimizer.step()
    optimizer.catch_up()
    torch.testing.assert_close(unused.detach(), before[0] / 1.05**4)
    assert torch.equal(frozen, before[1])


def test_no_row_ever_lacks_more_than_one_percent():
    parameter = nn.Parameter(torch.ones(10, 2))
    optimizer = RowwiseAdagrad([parameter], lr=0.01, weight_decay=0.2)
    for step in range(30):
        parameter.grad = torch.sparse_coo_tensor([[0]], torch.zeros(1, 2), (10, 2), check_invariants=True)
        optimizer.step()
        exact = (1 + 0.002) ** -(step + 1.0)
        assert exact * 0.999999 <= parameter.min().item() <= parameter.max().item() <= exact * math.exp(decay.MAX_LAG)
    assert parameter[5, 0] < 0.96


def test_what_a_parameter_will_be_is_known_without_changing_it():
    parameters = make_parameters([(10, 3), (4, 2)])
    optimizer = RowwiseAdagrad(parameters, lr=0.01, weight_decay=0.1)
    assert optimizer.caught_up() == {}
    give_gradients(parameters[:1], "sorted", seed=0)
    parameters[1].grad = torch.zeros(4, 2)
    optimizer.step()
    before = copies(parameters)
    found = optimizer.caught_up()
    assert list(found) == parameters[:1]  # the other has a dense gradient, and lacks nothing
    assert equal(parameters, before)
    optimizer.catch_up()
    assert torch.equal(found[parameters[0]], parameters[0])
    assert not torch.equal(before[0], parameters[0])
    assert optimizer.caught_up() == {}
    again = copies(parameters)
    optimizer.catch_up()
    assert equal(parameters, again)


@pytest.mark.parametrize("kind", [RowwiseAdagrad, LazyAdam])
def test_a_loaded_state_goes_on_to_the_bit_and_rows_still_lack_what_they_lacked(kind):
    parameters = make_parameters([(10, 3), (7, 4)])
    optimizer = kind(parameters, lr=0.02, weight_decay=0.1)
    for step in range(3):
        give_gradients(parameters, "sorted", seed=step)
        optimizer.step()
    others = copies(parameters)
    resumed = kind(others, lr=9.0)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert resumed.caught_up().keys() == set(others)
    for step in range(3, 9):
        for its, each in ((parameters, optimizer), (others, resumed)):
            give_gradients(its, "sorted", seed=step)
            each.step()
    assert equal(parameters, others)
    optimizer.catch_up()
    resumed.catch_up()
    assert equal(parameters, others)


def test_a_state_of_torch_s_own_is_taken_over():
    parameters = make_parameters([(10, 3)])
    theirs = torch.optim.Adam(copies(parameters), lr=0.1, weight_decay=0.1)
    optimizer = LazyAdam(parameters, lr=0.5)
    optimizer.load_state_dict(theirs.state_dict())
    give_gradients(parameters, "sorted", seed=0)
    optimizer.step()
    assert optimizer.param_groups[0]["weight_decay"] == 0.1
    assert optimizer.caught_up().keys() == set(parameters)


@pytest.mark.parametrize("form", ["coalesced", "unsorted", "repeated"])
def test_rows_that_occur_several_times_decay_once(path, form):
    parameters = make_parameters([(30, 4)])
    twins = copies(parameters)
    optimizers = [RowwiseAdagrad(each, lr=0.1, weight_decay=0.5) for each in (parameters, twins)]
    for step in range(5):
        give_gradients(parameters, form, seed=step)
        twins[0].grad = parameters[0].grad.to_dense()
        for optimizer in optimizers:
            optimizer.step()
    optimizers[0].catch_up()
    torch.testing.assert_close(parameters[0], twins[0], rtol=2e-5, atol=1e-6)


@pytest.mark.slow
def test_any_number_of_threads_gives_the_same_bits(num_threads):
    results = []
    for threads in (1, 2, 3):
        num_threads(threads)
        parameters = make_parameters([(60_000, 16), (30_000, 8)])  # enough values for several threads
        optimizer = RowwiseAdagrad(parameters, lr=0.1, weight_decay=0.01)
        for step in range(3):
            give_gradients(parameters, "sorted", seed=step)
            optimizer.step()
        optimizer.catch_up()
        results.append(copies(parameters))
    assert equal(results[0], results[1])
    assert equal(results[0], results[2])


def test_a_dense_gradient_of_a_table_that_had_sparse_ones():
    parameters = make_parameters([(12, 3)], torch.float64)
    twins = copies(parameters)
    optimizers = [RowwiseAdagrad(each, lr=0.1, weight_decay=0.01) for each in (parameters, twins)]
    for step, form in enumerate(("sorted", "dense", "sorted", "sorted", "dense")):
        for its, each in ((parameters, form), (twins, "dense")):
            give_gradients(its, each, seed=step)
        for optimizer in optimizers:
            optimizer.step()
    optimizers[0].catch_up()
    torch.testing.assert_close(parameters[0], twins[0], rtol=1e-12, atol=1e-15)


def test_decay_may_be_changed_and_turned_off_on_the_way():
    parameters = make_parameters([(12, 3)], torch.float64)
    twins = copies(parameters)
    optimizers = [RowwiseAdagrad(each, lr=0.1, weight_decay=0.01) for each in (parameters, twins)]
    for step, weight_decay in enumerate((0.01, 0.01, 0.03, 0.0, 0.0, 0.0, 0.02)):
        for its, form, optimizer in ((parameters, "sorted", optimizers[0]), (twins, "dense", optimizers[1])):
            give_gradients(its, form, seed=step)
            optimizer.param_groups[0]["weight_decay"] = weight_decay
            optimizer.step()
    optimizers[0].catch_up()
    torch.testing.assert_close(parameters[0], twins[0], rtol=1e-12, atol=1e-15)


@pytest.mark.slow
def test_training_a_table_with_sparse_gradients_is_training_it_with_dense_ones():
    """Here gradients depend on rows that may lack 1 % of decay when they are read."""
    made = []
    for sparse in (True, False):
        table = cce.create_embedding("cce-paper", 300, 8, num_params=800, sparse=sparse, seed=0)
        target = torch.randn(300, 8, generator=torch.Generator().manual_seed(1))
        optimizer = RowwiseAdagrad(table.parameters(), lr=0.2, weight_decay=0.02)
        for step in range(200):
            ids = torch.randint(300, (8,), generator=torch.Generator().manual_seed(step))
            optimizer.zero_grad()
            (table(ids) - target[ids]).square().sum(1).mean().backward()
            optimizer.step()
        optimizer.catch_up()
        made.append(table.to_dense())
    start = cce.create_embedding("cce-paper", 300, 8, num_params=800, seed=0).to_dense()
    assert (made[0] - made[1]).norm() < 0.01 * (made[1] - start).norm()


def test_the_clocks_of_rows_are_counted_in_bytes():
    table = cce.create_embedding("cce-paper", 200, 8, num_params=400, sparse=True, seed=0)
    optimizer = RowwiseAdagrad(table.parameters(), lr=0.1, weight_decay=0.1)
    table(torch.arange(9)).sum().backward()
    optimizer.step()
    clocks_and_sums = (4 + 4) * len(table.codebook)
    assert cce.summary(table, optimizer).total.optimizer_nbytes == clocks_and_sums


@pytest.mark.slow
def test_a_schedule_clusters_rows_that_lack_nothing():
    """The clustering of lazily decayed tables is that of tables that were decayed at every step."""
    made = []
    for sparse in (True, False):
        table = cce.ClusteredEmbedding(300, 8, num_rows=10, sparse=sparse, generator=torch.Generator().manual_seed(0))
        optimizer = RowwiseAdagrad(table.parameters(), lr=0.1, weight_decay=0.05)
        schedule = cce.ClusterSchedule(table, optimizer, at_steps=[1], seed=3)
        table(torch.arange(5)).sum().backward()
        optimizer.step()
        schedule.step()
        made.append(table.to_dense())
        if sparse:
            rows = optimizer.state[table.codebook][decay.ROWS]
            assert not rows.any()
            assert optimizer.param_groups[0][decay.CLOCK] == 0
    torch.testing.assert_close(*made, rtol=1e-5, atol=1e-6)


def test_after_a_clustering_of_one_s_own_a_row_lacks_what_the_rows_of_its_ids_lacked():
    table = cce.ClusteredEmbedding(300, 8, num_rows=10, sparse=True, generator=torch.Generator().manual_seed(0))
    optimizer = RowwiseAdagrad(table.parameters(), lr=0.1, weight_decay=0.05)
    for step in range(2):
        table(torch.arange(5) + 10 * step).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    before = optimizer.state[table.codebook][decay.ROWS].clone()
    old = table.assignments(torch.arange(300))
    event = table.cluster(generator=torch.Generator().manual_seed(1))
    cce.repair_optimizer(optimizer, event)
    after, new = optimizer.state[table.codebook][decay.ROWS], table.assignments(torch.arange(300))
    for row in new[:, 0].unique().tolist():
        torch.testing.assert_close(after[row], before[old[new[:, 0] == row, 0]].mean())
    cce.repair_optimizer(optimizer, event, policy="reset")
    assert optimizer.caught_up() == {}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", ["dense", "sorted"])
def test_types_in_which_decay_would_be_rounded_off_are_rejected(form, dtype):
    parameters = make_parameters([(10, 4)], dtype)
    give_gradients(parameters, form, seed=0)
    with pytest.raises(ValueError, match=r"weight_decay needs parameters of 32 or 64 bits, got torch\.b?float16"):
        RowwiseAdagrad(parameters, lr=0.1, weight_decay=0.1).step()


def test_a_state_of_another_number_of_rows_is_rejected(path):
    (parameter,) = make_parameters([(10, 4)])
    optimizer = RowwiseAdagrad([parameter], lr=0.1, weight_decay=0.1)
    optimizer.state[parameter][decay.ROWS] = torch.zeros(3)
    give_gradients([parameter], "sorted", seed=0)
    with pytest.raises(ValueError, match=r"decayed must have a value for each of 10 rows, got \(3,\)\."):
        optimizer.step()
