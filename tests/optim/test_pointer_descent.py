"""Codes that learn: the formula, ordinary training loops, states that are saved, and any number of threads."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn

import cce
from cce import compiled
from cce.optim import PointerDescent, code_steps, has_codes, pointer_descent

NUM_IDS, DIM = 1000, 8


def table_of(**options):
    options = {"num_learned": 300, "num_shared": 20} | options
    return cce.QuantizedEmbedding(NUM_IDS, DIM, generator=torch.Generator().manual_seed(0), **options)


def steps(table, optimizer, num_steps=20, *, first=0, batch=256):
    """Least squares towards a target that is drawn once."""
    target = torch.randn(NUM_IDS, DIM, generator=torch.Generator().manual_seed(9))
    losses = []
    for step in range(first, first + num_steps):
        g = torch.Generator().manual_seed(step)
        ids = (torch.rand(batch, generator=g) ** 3 * NUM_IDS).long()  # small ids are frequent
        optimizer.zero_grad()
        loss = (table(ids) - target[ids]).square().sum(1).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# -- the formula -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalize_by", ["row", "group"])
def test_one_step_is_that_of_the_formula(normalize_by, path):
    """With 16 bits rounding hides nothing: one row, one gradient, all of it by hand."""
    table = table_of(bits=16)
    optimizer = PointerDescent(table, lr=0.01, weight_decay=0.02, beta=0.9, normalize_by=normalize_by)
    before = table.to_dense(torch.tensor([5, 6])).clone()
    grad = torch.linspace(-1, 1.5, DIM)
    (table(torch.tensor([5, 5])) * grad / 2).sum().backward()
    optimizer.step()
    visits = 1 / 4  # of ids 3 to 6, which are a group
    root = (grad.square() * (visits if normalize_by == "group" else 1)).sqrt()
    expected = (before[0] - 0.01 * grad / root) / (1 + 0.01 * 0.02 / (visits * root))
    after = table.to_dense(torch.tensor([5, 6]))
    torch.testing.assert_close(after[0], expected, rtol=0, atol=1.01 * table.scale.item())
    assert torch.equal(after[1], before[1])


def test_moments_are_means_over_time_and_over_a_group(path):
    table = table_of(bits=16)
    optimizer = PointerDescent(table, lr=0.0, beta=0.75)
    for ids in ([1, 2], [1], []):
        (2 * table(torch.tensor(ids, dtype=torch.int64))).sum().backward()
        optimizer.step()
    state = optimizer.state[table.scale]
    assert state["step"] == 3
    visits = 0.25 * 0.75**2 * 1 + 0.25 * 0.75 * 0.5
    assert state["visits"][1].item() == pytest.approx(visits)
    torch.testing.assert_close(state["squares"][1], torch.full((DIM,), 4 * visits))
    assert not state["squares"][[0, 2, 3]].any()


@pytest.mark.slow
@pytest.mark.parametrize("normalize_by", ["row", "group"])
def test_an_id_that_is_hardly_ever_seen_moves_as_if_seen_within_the_memory_of_the_mean(normalize_by):
    rare = cce.QuantizedEmbedding(2**17, DIM, bits=16, generator=torch.Generator().manual_seed(0))
    optimizer = PointerDescent(rare, lr=1e-4, beta=0.99, refit_every=10**6, normalize_by=normalize_by)
    for step in range(1000):
        row = torch.tensor([2**16 + step])
        before = rare.to_dense(row)
        rare(row).sum().backward()
        optimizer.step()
    moved = (before - rare.to_dense(row)).mean().item()
    assert moved == pytest.approx(1e-4 / math.sqrt(1 - 0.99), rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("normalize_by", "rtol"), [("row", 0.35), ("group", 0.15)])
def test_decay_does_not_depend_on_how_often_an_id_is_seen(normalize_by, rtol):
    """Frequent and rare ids with gradients of one size decay by the same in the same time."""
    table = cce.QuantizedEmbedding(3, DIM, bits=16, scale_by="group", generator=torch.Generator().manual_seed(0))
    table.fit_to(torch.ones(3, DIM))
    optimizer = PointerDescent(table, lr=1e-3, weight_decay=0.05, refit_every=10**6, normalize_by=normalize_by)
    g = torch.Generator().manual_seed(0)
    for step in range(3000):
        ids = torch.tensor([0] if step % 10 else [0, 1, 2])
        signs = torch.randint(0, 2, (len(ids), DIM), generator=g) * 2.0 - 1
        (table(ids) * signs * torch.tensor([1.0, 10**0.5, 10**0.5])[ids].unsqueeze(1)).sum().backward()
        optimizer.step()
    shrunk = -table.to_dense().mean(1).log() / 3000
    torch.testing.assert_close(shrunk, torch.full((3,), 1e-3 * 0.05), rtol=rtol, atol=0)


# -- training ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("scale_by", ["table", "column", "group"])
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("normalize_by", ["row", "group"])
def test_it_learns(bits, scale_by, normalize_by):
    table = table_of(num_learned=None, bits=bits, scale_by=scale_by)
    optimizer = PointerDescent(table, lr=0.03, normalize_by=normalize_by)
    losses = steps(table, optimizer, 600)
    assert losses[-1] < 0.02 * losses[0]


@pytest.mark.slow
def test_it_learns_from_a_start_that_is_far_too_small():
    table = table_of(num_learned=None)
    with torch.no_grad():
        table.scale.mul_(1e-3)
    losses = steps(table, PointerDescent(table, lr=0.03), 600)
    assert losses[-1] < 0.02 * losses[0]


@pytest.mark.slow
@pytest.mark.skipif(not compiled.available, reason="numba is not installed")
@pytest.mark.parametrize("normalize_by", ["row", "group"])
def test_loops_give_the_same_bits_as_plain_torch_on_any_number_of_threads(
    normalize_by, plain, num_threads, monkeypatch
):
    monkeypatch.setattr(code_steps, "PARALLEL", 1)
    results = []
    for threads in (1, 2, 3, None):
        table = table_of()
        optimizer = PointerDescent(table, weight_decay=1e-3, refit_every=8, normalize_by=normalize_by)
        if threads is None:
            with plain():
                steps(table, optimizer)
        else:
            num_threads(threads)
            steps(table, optimizer)
        results.append([*table.state_dict().values(), optimizer.state[table.scale]["squares"]])
    for others in results[1:]:
        for found, expected in zip(others, results[0], strict=True):
            assert torch.equal(found, expected)


def test_equal_seeds_give_equal_codes():
    codes = []
    for seed in (0, 0, 1):
        table = table_of()
        steps(table, PointerDescent(table, seed=seed))
        codes.append(table.codes.values)
    assert torch.equal(codes[0], codes[1])
    assert not torch.equal(codes[0], codes[2])


def test_tables_of_a_model_round_independently():
    model = nn.ModuleList([table_of(), table_of()])
    optimizer = PointerDescent(model)
    for table in model:
        table(torch.arange(300)).sum().backward()
    optimizer.step()
    assert not torch.equal(model[0].codes.values, model[1].codes.values)


def test_it_goes_along_with_another_optimizer_of_the_whole_model():
    model = nn.Sequential(table_of(), nn.Linear(DIM, 1))
    assert has_codes(model)
    assert not has_codes(model[1])
    with pytest.raises(ValueError, match="model must have tables of method 'quantized', got none"):
        PointerDescent(model[1])
    codes, rest = PointerDescent(model), torch.optim.AdamW(model.parameters(), weight_decay=0.5)
    before = copy.deepcopy(model)
    model(torch.arange(10)).sum().backward()
    codes.step()
    scale = model[0].scale.clone()
    rest.step()
    assert torch.equal(model[0].scale, scale)
    assert not torch.equal(model[0].codes.values[:10], before[0].codes.values[:10])
    assert not torch.equal(model[1].weight, before[1].weight)


def test_gradients_of_several_backwards_add_up_and_zero_grad_forgets_them(path):
    one, two, three = table_of(), table_of(), table_of()
    ids = torch.arange(20)
    optimizers = [PointerDescent(table) for table in (one, two, three)]
    (one(ids).square().sum()).backward()
    for part in ids.split(10):
        two(part).square().sum().backward()
    three(ids).sum().backward()
    optimizers[2].zero_grad()
    three(ids).square().sum().backward()
    for optimizer in optimizers:
        optimizer.step()
    assert torch.equal(one.codes.values, two.codes.values)
    assert torch.equal(one.codes.values, three.codes.values)


def test_codes_of_four_bits_are_not_trained():
    table = table_of(bits=4)
    optimizer = PointerDescent(table)
    before = table.codes.values.clone()
    table(torch.arange(5)).sum().backward()
    with pytest.raises(ValueError, match=r"bits must be 8 or 16 to be trained, got 4: a trained table is rounded"):
        optimizer.step()
    assert torch.equal(table.codes.values, before)


def test_a_step_without_backward_changes_nothing():
    table = table_of()
    optimizer = PointerDescent(table)
    before = table.codes.values.clone()
    optimizer.step()
    assert torch.equal(table.codes.values, before)
    assert optimizer.state[table.scale]["step"] == 0


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_gradients_that_are_not_finite_change_nothing(wrong, path):
    table = table_of()
    optimizer = PointerDescent(table)
    before = table.codes.values.clone()
    (table(torch.arange(5)) * torch.tensor([1.0, 1, wrong, 1, 1]).unsqueeze(1)).sum().backward()
    with pytest.raises(ValueError, match="gradients of codes must be finite, got NaN or inf; nothing was changed"):
        optimizer.step()
    assert torch.equal(table.codes.values, before)
    assert not optimizer.state[table.scale]["squares"].any()


def test_a_closure_is_called():
    table = table_of()
    optimizer = PointerDescent(table)
    before = table.codes.values.clone()

    def closure():
        loss = table(torch.arange(5)).sum()
        loss.backward()
        return loss.item()

    assert optimizer.step(closure) == pytest.approx(table_of()(torch.arange(5)).sum().item())
    assert not torch.equal(table.codes.values[:5], before[:5])


def test_padding_is_not_trained():
    table = table_of(padding_idx=3)
    optimizer = PointerDescent(table, weight_decay=1.0)
    before = table.codes.values.clone()
    table(torch.tensor([3, 3, 4])).sum().backward()
    optimizer.step()
    assert torch.equal(table.codes.values[3], before[3])
    assert not torch.equal(table.codes.values[4], before[4])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_train_their_table(mode):
    bag = cce.EmbeddingBag(table_of(num_learned=None), mode=mode)
    optimizer = PointerDescent(bag, lr=0.02)
    ids = torch.arange(60).view(20, 3)
    losses = []
    for _ in range(300):
        loss = (bag(ids) - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.05 * losses[0]


@pytest.mark.slow
def test_a_collection_trains_quantized_tables_beside_full_ones():
    tables = cce.EmbeddingCollection(
        {"a": 900, "b": 30}, DIM, method="quantized", budget=cce.Budget(nbytes=8000), seed=0
    )
    assert [type(table).__name__ for table in tables.tables.values()] == ["QuantizedEmbedding", "FullEmbedding"]
    optimizers = [PointerDescent(tables, lr=0.02), torch.optim.Adam(tables.parameters(), lr=0.02)]
    g = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(300):
        ids = torch.stack([torch.randint(0, size, (256,), generator=g) for size in (900, 30)], dim=1)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = (tables(ids) - 1).square().mean((0, 2))
        loss.sum().backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.detach())
    assert (losses[-1] < 0.05 * losses[0]).all()


# -- state -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("normalize_by", ["row", "group"])
def test_a_saved_run_goes_on_to_the_bit(dtype, normalize_by, tmp_path):
    whole, half = (table_of().to(dtype) for _ in range(2))
    optimizer = PointerDescent(whole, refit_every=4, normalize_by=normalize_by)
    steps(whole, optimizer)
    first = PointerDescent(half, refit_every=4, normalize_by=normalize_by)
    steps(half, first, 9)
    torch.save([half.state_dict(), first.state_dict()], tmp_path / "saved.pt")
    states = torch.load(tmp_path / "saved.pt", weights_only=True)
    other = cce.QuantizedEmbedding(NUM_IDS, DIM, num_learned=300, num_shared=20).to(dtype)
    second = PointerDescent(other, lr=5.0, seed=77)
    other.load_state_dict(states[0])
    second.load_state_dict(states[1])
    steps(other, second, 11, first=9)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor)
    by_row = ("levels", "uses") if normalize_by == "row" else ()
    for name in ("squares", "visits", *by_row):
        found, expected = second.state[other.scale][name], optimizer.state[whole.scale][name]
        assert torch.equal(found, expected)
        assert found.dtype is expected.dtype


def test_states_of_before_rows_had_moments_go_on_as_they_were():
    table, other = table_of(), table_of()
    optimizer = PointerDescent(table, normalize_by="group")
    steps(table, optimizer, 3)
    saved = copy.deepcopy(optimizer.state_dict())
    for group in saved["param_groups"]:
        del group["normalize_by"]
    second = PointerDescent(other)
    other.load_state_dict(table.state_dict())
    second.load_state_dict(saved)
    steps(table, optimizer, 3, first=3)
    steps(other, second, 3, first=3)
    assert torch.equal(table.codes.values, other.codes.values)


def test_rows_take_two_bytes_of_state_or_none():
    nbytes = {
        kind: cce.summary(table, PointerDescent(table, normalize_by=kind)).total.optimizer_nbytes
        for kind, table in (("row", table_of()), ("group", table_of()))
    }
    assert nbytes["row"] == nbytes["group"] + 2 * 320
    assert nbytes["group"] == 4 * 10 * (DIM + 1)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
def test_copies_of_table_and_optimizer_train_on_together(duplicate):
    table = table_of()
    optimizer = PointerDescent(table)
    steps(table, optimizer, 3)
    twin, its_optimizer = duplicate((table, optimizer))
    steps(table, optimizer, 3, first=3)
    before = twin.codes.values.clone()
    steps(twin, its_optimizer, 3, first=3)
    assert not torch.equal(twin.codes.values, before)
    assert torch.equal(twin.codes.values, table.codes.values)


def test_a_scheduler_sets_the_learning_rate():
    table = table_of()
    optimizer = PointerDescent(table, lr=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0 if step else 1.0)
    before = table.codes.values.clone()
    for is_moved in (True, False):
        table(torch.arange(5)).sum().backward()
        optimizer.step()
        schedule.step()
        assert torch.equal(table.codes.values, before) != is_moved
        before = table.codes.values.clone()


def test_scales_are_fitted_often_at_first():
    due = [step for step in range(1, 30) if pointer_descent._is_due(step, 10)]
    assert due == [1, 2, 4, 8, 10, 20]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1}, "lr must be a finite number of at least 0, got -1"),
        ({"weight_decay": -1}, "weight_decay must be a finite number of at least 0, got -1"),
        ({"beta": 1}, r"beta must lie in \[0, 1\), got 1\."),
        ({"normalize_by": "column"}, "normalize_by must be one of row, group; got 'column'"),
        ({"refit_every": 0}, r"refit_every must lie in \[1, 2\*\*63\), got 0\."),
    ],
)
def test_wrong_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        PointerDescent(table_of(), **options)
