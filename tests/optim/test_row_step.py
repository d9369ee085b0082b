"""One step of int8 rows: plain torch and compiled loops agree to the bit, and the rule is Adam's."""

import pytest
import torch
from torch import nn

import cce
from cce import compiled
from cce.embeddings import Int8Rows, row_lookup
from cce.kernels import int8 as loops
from cce.kernels.cpu.int8 import is_due
from cce.optim import row_step
from cce.optim.row_optimizers import ROW_BETA

NUM_IDS, DIM = 3000, 8


class Model(nn.Module):
    def __init__(self, dim=DIM, **options):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.table = cce.embeddings.CCEEmbedding(NUM_IDS, dim, generator=generator, **options)
        self.net = nn.Linear(dim, 1)
        with torch.no_grad():
            self.net.weight.fill_(0.3), self.net.bias.zero_()

    def forward(self, ids):
        return self.net(self.table(ids).sum(1)).squeeze(1)


def batch(step, size=128):
    generator = torch.Generator().manual_seed(step)
    ids = (torch.rand(size, 3, generator=generator) ** 3 * NUM_IDS).long()
    return ids, (ids.sum(1) % 2).float()


def train(model, optimizer, steps):
    for step in steps:
        ids, labels = batch(step)
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(ids), labels).backward()
        optimizer.step()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"padding_idx": 7},
        {"unseen": "trained"},
        {"min_count": 1},
        {"min_count": 5},
        {"start_scale": "zero"},
        {"dim": 6},
    ],
)
def test_plain_torch_and_compiled_loops_give_the_same_bits(options, monkeypatch):
    states = []
    for in_loops in (True, False):
        if not in_loops:
            monkeypatch.setattr(Int8Rows, "can_loop", in_loops)
        model = Model(**options)
        optimizer = cce.optim.Adam(model, lr=1e-2, weight_decay=1e-4)
        train(model, optimizer, range(40))
        states.append((model.state_dict(), optimizer.state[model.table.anchor]))
    (one, of_one), (other, of_other) = states
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert all(torch.equal(torch.as_tensor(of_one[name]), torch.as_tensor(of_other[name])) for name in of_one)


def test_an_id_gets_its_row_at_its_second_occurrence_if_asked():
    model = Model(min_count=2)
    optimizer = cce.optim.Adam(model, lr=1e-2)
    for ids, expected in (([5, 6, 8], 0), ([5, 9, 9], 2), ([6, 8, 1], 4)):
        optimizer.zero_grad()
        model(torch.tensor([ids])).sum().backward()
        optimizer.step()
        assert model.table.rows.num_rows - 1 == expected
    assert model.table.rows.find(torch.tensor([5, 9, 6, 8, 1])).gt(0).tolist() == [True, True, True, True, False]


def test_known_counts_say_which_ids_have_rows_and_no_others_get_any():
    counts = torch.zeros(NUM_IDS, dtype=torch.int64)
    counts[[3, 10]] = 2
    counts[4] = 1
    model = Model(counts=counts, min_count=2)
    train(model, cce.optim.Adam(model, lr=1e-2), range(5))
    assert torch.cat(list(model.table.row_map.ids())).tolist() == [3, 10]


def test_ids_without_a_row_read_zeros_in_training_and_their_gradients_move_nothing():
    model = Model(counts=torch.zeros(NUM_IDS, dtype=torch.int64))
    train(model, cce.optim.Adam(model, lr=1e-2), range(5))
    assert model.table.to_dense().eq(0).all()


def test_a_trained_row_for_them_is_shared_by_all():
    model = Model(counts=torch.zeros(NUM_IDS, dtype=torch.int64), unseen="trained")
    train(model, cce.optim.Adam(model, lr=1e-2), range(5))
    table = model.table.to_dense()
    assert table[0].abs().sum() > 0
    assert torch.equal(table, table[:1].expand_as(table))


@pytest.mark.slow
def test_rows_move_about_as_far_as_float_rows_under_adam():
    """A table of few ids, which all occur in every step: what Adam does with dense gradients."""
    num_ids = 6
    counts = torch.full((num_ids,), 9)
    table = cce.embeddings.CCEEmbedding(
        num_ids, DIM, counts=counts, start_scale=0.5, generator=torch.Generator().manual_seed(0)
    )
    full = nn.Embedding.from_pretrained(table.to_dense().clone(), freeze=False)
    goal = torch.randn(num_ids, DIM, generator=torch.Generator().manual_seed(1))
    ids = torch.arange(num_ids)
    for module, optimizer in (
        (table, cce.optim.Adam(table, lr=0.02)),
        (full, torch.optim.Adam(full.parameters(), lr=0.02, betas=(0.0, 0.999))),
    ):
        for _ in range(300):
            optimizer.zero_grad()
            (module(ids) - goal).square().sum().backward()
            optimizer.step()
    assert (table.to_dense() - goal).abs().mean() < 0.05
    assert (full.weight - goal).abs().mean() < 0.05


def moved_by(table, optimizer, ids, grad):
    before = table.rows.read(ids)
    optimizer.zero_grad()
    (table(ids) * grad).sum().backward()
    optimizer.step()
    return (table.rows.read(ids) - before).abs().mean(1)


def test_a_first_gradient_that_is_small_for_its_group_moves_a_row_little():
    """Adam would move all of them by `lr`."""
    table = Model(counts=torch.full((NUM_IDS,), 1), start_scale=0.5).table
    grad = torch.ones(50, DIM)
    grad[-1] = 0.01
    moved = moved_by(table, cce.optim.Adam(table, lr=0.2), torch.arange(50), grad)
    assert moved[:-1].mean() == pytest.approx(0.2, rel=0.1)
    assert moved[-1] < 0.05


def test_a_row_that_is_seen_late_moves_by_the_weight_of_all_steps():
    table = Model(counts=torch.full((NUM_IDS,), 1), start_scale=0.5).table
    optimizer = cce.optim.Adam(table, lr=0.02)
    for step in range(30):
        moved = moved_by(table, optimizer, torch.arange(20) + 20 * step, torch.ones(20, DIM))
    wanted = 0.02 * ((1 - ROW_BETA**30) / (1 - ROW_BETA)) ** 0.5
    assert wanted > 0.08
    assert moved.mean() == pytest.approx(wanted, rel=0.1)


def test_weight_decay_shrinks_rows_that_have_no_other_gradient_to_speak_of():
    model = Model(min_count=1, start_scale=0.5)
    optimizer = cce.optim.Adam(model.table, lr=1e-2, weight_decay=1.0)
    ids = torch.arange(50)
    sizes = []
    for step in range(60):
        optimizer.zero_grad()
        noise = torch.randn(50, DIM, generator=torch.Generator().manual_seed(step)) * 1e-3
        (model.table(ids) * noise).sum().backward()
        optimizer.step()
        sizes.append(float(model.table.rows.read(ids).square().mean()))
    assert sizes[-1] < 0.2 * sizes[0]


def test_the_scale_follows_the_values():
    model = Model(min_count=1, start_scale=1e-3)
    before = model.table.rows.scale
    train(model, cce.optim.Adam(model, lr=5e-2), range(60))
    values = model.table.rows.codes[1 : model.table.rows.num_rows].float()
    assert model.table.rows.scale > 3 * before
    assert values.abs().eq(127).float().mean() < 0.01


def test_scales_are_fitted_often_at_first_and_then_now_and_then():
    assert [step for step in range(1, 600) if is_due(step)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]


@pytest.mark.slow
def test_any_number_of_threads_gives_the_same_bits(monkeypatch, num_threads):
    monkeypatch.setattr(row_lookup, "PARALLEL_VALUES", 1)
    monkeypatch.setattr(row_step, "PARALLEL", 1)
    states = []
    for threads in (1, 2, 3):
        num_threads(threads)
        tables = cce.EmbeddingCollection(dict.fromkeys("abcd", NUM_IDS), DIM, seed=0)
        optimizer = cce.optim.Adam(tables, lr=1e-2)
        for step in range(5):
            ids, _ = batch(step, 256)
            optimizer.zero_grad()
            tables(torch.cat([ids, ids[:, :1]], dim=1)).square().sum().backward()
            optimizer.step()
        states.append(tables.state_dict())
    assert all(torch.equal(states[0][name], state[name]) for state in states[1:] for name in state)


@pytest.mark.skipif(not compiled.available, reason="numba is not installed")
def test_all_tables_are_looked_up_in_one_call_and_moved_in_one(monkeypatch):
    calls = []

    def counted(name, loop):
        return lambda tables, *rest: calls.append((name, len(tables))) or loop(tables, *rest)

    monkeypatch.setenv("CCE_COMPILED", "1")
    for name in ("look_up", "step"):
        monkeypatch.setattr(loops, name, counted(name, getattr(loops, name)))
    tables = cce.EmbeddingCollection(dict.fromkeys("abc", NUM_IDS), DIM, seed=0)
    optimizer = cce.optim.Adam(tables, lr=1e-2)
    for step in range(2):
        tables(batch(step)[0]).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert calls == [("look_up", 3), ("step", 3)] * 2
