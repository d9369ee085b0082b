"""Tables of any ids: who gets a row, who loses it, and that it is nobody else's before it is cleared."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch

import cce
from cce.embeddings import Int8Rows, note_seen, seen_before
from cce.indexing import NO_ID, scramble, unscramble
from helpers.final_form import finalize_table

DIM = 8
POLICIES = (
    {},
    {"min_count": 2},
    {"min_count": 3, "counter_nbytes": 400},
    {"probability": 0.3},
    {"max_rows": 200},
    {"max_rows": 200, "eviction": "lru"},
    {"time_to_live": 10},
    {"max_rows": 300, "min_count": 2, "time_to_live": 20, "eviction": "lru"},
    {"padding_idx": -5},
)


def make(**options):
    return cce.create_embedding("cce", None, DIM, seed=3, **options)


def batch(step, size=200):
    """Ids that occur by a power law, which moves on with the steps."""
    drawn = torch.rand(size, generator=torch.Generator().manual_seed(step)) ** 3 * 1000
    return scramble(drawn.long() + 20 * step)


def take_step(table, optimizer, ids):
    optimizer.zero_grad()
    goal = (ids % 3).unsqueeze(1).float()
    (table(ids) - goal).square().sum().backward()
    optimizer.step()


def train(table, steps, optimizer=None):
    optimizer = optimizer or cce.optim.Adam(table, lr=1e-2, weight_decay=1e-4)
    for step in steps:
        take_step(table, optimizer, batch(step))
    return optimizer


def ids_of(table):
    table.rows.compact()
    return set(torch.cat(list(table.row_map.ids())).tolist())


def counted(table, name):
    return int(table.rows.live.record[name][0])


@pytest.mark.slow
@pytest.mark.parametrize("options", POLICIES)
def test_plain_torch_and_compiled_loops_give_the_same_bits(options, monkeypatch):
    states = []
    for in_loops in (True, False):
        if not in_loops:
            monkeypatch.setattr(Int8Rows, "can_loop", in_loops)
        table = make(**options)
        optimizer = train(table, range(60))
        states.append(table.state_dict() | optimizer.state[table.anchor])
    one, other = states
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_every_integer_is_an_id_but_the_smallest():
    table = make(min_count=1)
    ids = torch.tensor([0, -1, 2**63 - 1, -(2**63) + 1, NO_ID])
    take_step(table, cce.optim.Adam(table, lr=1e-2), ids)
    assert ids_of(table) == set(ids[:4].tolist())
    assert table(ids).abs().sum(1).gt(0).tolist() == [True] * 4 + [False]
    assert table(torch.tensor([5], dtype=torch.int32)).eq(0).all()


def test_ids_do_not_collide_and_each_learns_its_own():
    table = make(min_count=1)
    optimizer = cce.optim.Adam(table, lr=0.05)
    ids = torch.arange(3000) * 2**40 - 2**50
    for _ in range(60):
        take_step(table, optimizer, ids)
    assert len(ids_of(table)) == 3000
    assert (table(ids).mean(1) - ids % 3).abs().mean() < 0.1


def test_an_id_gets_its_row_when_it_has_occurred_often_enough():
    table = make(min_count=3)
    optimizer = cce.optim.Adam(table, lr=1e-2)
    for ids, expected in (([-5, -5, 7], set()), ([7, 8], set()), ([-5], {-5}), ([7], {-5, 7})):
        take_step(table, optimizer, torch.tensor(ids))
        assert ids_of(table) == expected


def test_the_sketch_counts_none_too_low_and_few_too_high():
    rows = make(min_count=9, counter_nbytes=1 << 14).rows
    generator, seen = torch.Generator().manual_seed(0), {}
    while int(rows.live.record["counted"][0]) < rows.ages_at - 100:
        drawn = (torch.rand(50, generator=generator) ** 4 * 5000).long()
        ids, counts = drawn.unique(return_counts=True)
        note_seen(rows, ids, seen_before(rows, ids), counts, torch.zeros(len(ids), dtype=torch.bool))
        for given, count in zip(ids.tolist(), counts.tolist(), strict=True):
            seen[given] = seen.get(given, 0) + count
    ids = torch.arange(10_000)
    truth = torch.tensor([seen.get(given, 0) for given in range(10_000)]).clamp(max=255)
    found = seen_before(rows, ids)
    assert (found >= truth).all()
    assert (found - truth > 1).float().mean() < 0.01
    assert (found > truth).float().mean() < 0.03


def test_counts_are_halved_when_the_sketch_is_half_full():
    table = make(min_count=200, counter_nbytes=400)
    optimizer = cce.optim.Adam(table, lr=1e-2)
    take_step(table, optimizer, torch.full((40,), 7))
    assert seen_before(table.rows, torch.tensor([7])) == 40
    take_step(table, optimizer, torch.full((20,), 7))
    assert seen_before(table.rows, torch.tensor([7])) == 30
    assert counted(table, "counted") == 30


def test_by_chance_an_id_gets_a_row_in_proportion_to_its_occurrences():
    table = make(probability=0.1)
    take_step(table, cce.optim.Adam(table, lr=1e-2), torch.arange(4000).repeat_interleave(2))
    assert len(ids_of(table)) == pytest.approx(800, rel=0.1)


@pytest.mark.parametrize("eviction", ["lfu", "lru", None])
def test_the_cap_holds_under_a_flood_of_new_ids(eviction):
    table = make(max_rows=100, eviction=eviction)
    optimizer = cce.optim.Adam(table, lr=1e-2)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step in range(40):
            take_step(table, optimizer, torch.arange(step * 300, step * 300 + 300))
            assert 1 <= table.rows.num_rows - 1 <= 100
            assert table.rows.num_rows == table.row_map.num_rows + table.rows.num_recent + 1
    assert counted(table, "admitted") - counted(table, "evicted") == table.rows.num_rows - 1
    if eviction is None:
        assert ids_of(table) == set(range(100))
        assert [str(each.message) for each in said] == [
            "an open table is full: its max_rows=100 rows are taken, and with eviction=None no new id gets one; "
            "such ids read zeros."
        ]


def test_frequent_ids_stay_and_rare_ones_go():
    table = make(max_rows=160, eviction="lfu")
    optimizer = cce.optim.Adam(table, lr=1e-2)
    often = torch.arange(-100, 0)
    for step in range(60):
        take_step(table, optimizer, torch.cat([often, torch.arange(step * 20, step * 20 + 20)]))
    assert set(often.tolist()) <= ids_of(table)


def test_ids_that_were_frequent_once_go_in_the_end():
    table = make(max_rows=160, eviction="lfu")
    optimizer = cce.optim.Adam(table, lr=1e-2)
    for step in range(600):
        often = torch.arange(-100, 0) - 100 * (step >= 60)
        take_step(table, optimizer, torch.cat([often, torch.arange(step * 20, step * 20 + 20)]))
    assert set(range(-200, -100)) <= ids_of(table)
    assert len(ids_of(table) & set(range(-100, 0))) <= 10


def test_ids_that_were_not_seen_for_long_go():
    table = make(max_rows=160, eviction="lru")
    optimizer = cce.optim.Adam(table, lr=1e-2)
    for step in range(60):
        take_step(table, optimizer, torch.arange(step * 20, step * 20 + 20))
    kept = ids_of(table)
    assert set(range(1200 - len(kept) + 20, 1200)) <= kept <= set(range(1200 - len(kept) - 20, 1200))
    assert len(kept) >= 120


def test_ids_live_for_as_many_steps_as_they_may():
    table = make(time_to_live=32)
    optimizer = cce.optim.Adam(table, lr=1e-2)
    take_step(table, optimizer, torch.tensor([1, 2]))
    for step in range(40):
        take_step(table, optimizer, torch.tensor([1]))
        assert (2 in ids_of(table)) == (step < 32)
    assert counted(table, "expired") == 1
    assert table(torch.tensor([2])).eq(0).all()


def test_a_row_is_cleared_before_another_id_gets_it():
    """An id that comes for the first time moves as in a table where nobody was before it."""
    found = []
    for others in (0, 150):
        table = make(max_rows=160, eviction="lru", start_scale=0.1)
        optimizer = cce.optim.Adam(table, lr=1e-2)
        optimizer.state[table.anchor]["unit"].fill_(1.0)
        for step in range(8):
            ids = torch.arange(step * 150, step * 150 + others)
            if others:
                take_step(table, optimizer, ids)
        rows = table.rows
        rows.compact()
        assert rows.records[rows.num_rows :].eq(0).all()
        rows.give_rows(torch.tensor([-9]))
        at = rows.find(torch.tensor([-9]))
        assert rows.levels[at] == rows.uses[at] == 0
        found.append(rows.codes[at].float() * rows.scale)
    assert (found[0] - found[1]).abs().max() < 0.01


@pytest.mark.parametrize("options", POLICIES[1:])
def test_a_run_that_is_saved_and_resumed_ends_with_the_same_bits(options):
    whole, first = make(**options), make(**options)
    train(whole, range(60))
    optimizer = train(first, range(30))
    resumed = make(**options)
    train(resumed, range(90, 100))  # it has grown
    again = cce.optim.Adam(resumed, lr=1e-2, weight_decay=1e-4)
    resumed.load_state_dict(first.state_dict())
    again.load_state_dict(optimizer.state_dict())
    train(resumed, range(30, 60), again)
    expected, found = whole.state_dict(), resumed.state_dict()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda table: pickle.loads(pickle.dumps(table))])
def test_a_copy_goes_on_alone(duplicate):
    table = make(max_rows=200)
    train(table, range(20))
    other = duplicate(table)
    train(other, range(20, 40))
    train(table, range(20, 40))
    assert ids_of(table) == ids_of(other)
    train(table, range(40, 60))
    assert ids_of(table) != ids_of(other)


def test_bounded_tables_can_have_a_cap_too():
    table = cce.create_embedding("cce", 5000, DIM, max_rows=100, seed=0)
    optimizer = cce.optim.Adam(table, lr=1e-2)
    for step in range(20):
        take_step(table, optimizer, torch.arange(step * 60, step * 60 + 60))
        assert table.rows.num_rows <= 101
    assert ids_of(table) <= set(range(1200))


def test_a_budget_is_a_cap_of_rows():
    assert make(num_params=1000 * DIM).policy.max_rows == 1000
    table = make(nbytes=100_000)
    optimizer = cce.optim.Adam(table, lr=1e-2)
    for step in range(60):
        take_step(table, optimizer, torch.arange(step * 150, step * 150 + 150))
        assert table.nbytes <= 100_000
    assert table.rows.num_rows > 100_000 / (DIM + 3 + 14) * 0.8


def test_a_finalized_table_reads_its_vectors_and_zeros_for_ids_that_it_never_saw():
    table = make()
    train(table, range(30))
    ids = torch.tensor([*ids_of(table)])
    before = table(ids).detach()
    finalize_table(table, num_columns=DIM, num_rows=256)
    assert torch.equal(table(ids), before)
    assert table(torch.tensor([NO_ID, 12345, -9])).eq(0).all()


def test_a_collection_of_open_and_bounded_features_is_looked_up_together():
    tables = cce.EmbeddingCollection({"user": None, "item": 50, "ad": None}, DIM, seed=0)
    optimizer = cce.optim.Adam(tables, lr=1e-2)
    ids = torch.stack([scramble(torch.arange(64)), torch.arange(64) % 50, -torch.arange(64)], dim=1)
    tables(ids).square().sum().backward()
    optimizer.step()
    found = tables(ids)
    alone = torch.stack([table(column) for table, column in zip(tables.tables.values(), ids.T, strict=True)], dim=1)
    assert torch.equal(found, alone)
    assert "any" in str(cce.summary(tables))


HASHED = ("hash", "hash-embedding", "ce-concat", "ce-sum", "ce-mult", "robe", "dhe")


@pytest.mark.parametrize("method", HASHED)
def test_hashed_methods_take_any_id(method):
    table = cce.create_embedding(method, None, DIM, num_params=2000, seed=0)
    ids = torch.cat([scramble(torch.arange(100)), torch.tensor([-1, 2**63 - 1])])
    vectors = table(ids)
    assert vectors.shape == (102, DIM)
    assert len(vectors.unique(dim=0)) > 80
    assert table.num_params <= 2000 * 1.01
    frozen = cce.freeze(table)
    assert torch.allclose(frozen(ids), vectors, atol=1e-6)


@pytest.mark.parametrize("method", sorted({*cce.embeddings.METHODS} - {*HASHED, "cce"}))
def test_other_methods_say_that_they_need_a_number_of_ids(method):
    with pytest.raises(ValueError, match=f"num_embeddings must be a number for method '{method}'"):
        cce.create_embedding(method, None, DIM, num_params=2000)


def test_public_hashes_of_strings_are_ids():
    ids = torch.from_numpy(cce.hash_ids(["alice", "bob"]))
    assert ids.dtype is torch.int64
    assert make()(ids).eq(0).all()
    assert isinstance(cce.hash_ids(["alice"]), np.ndarray)


def test_loops_find_what_plain_torch_finds_however_keys_are_spread():
    for count in (1, 7, 8, 9, 3_000):
        far = torch.randint(-(2**63) + 1, 2**63 - 1, (count // 2,), generator=torch.Generator().manual_seed(count))
        close = torch.arange(count - count // 2) * 3 + (count << 40)  # in few buckets of the directory
        ids = unscramble(torch.cat([far, close]))
        table = make()
        table.rows.give_rows(ids)
        asked = torch.cat([ids, unscramble(torch.cat([close + 1, far - 1, torch.tensor([2**63 - 1, -(2**63) + 1])]))])
        assert torch.equal(table.rows.find(asked), table.rows.find_plain(asked))
        assert table.rows.find(ids).sort().values.tolist() == [*range(1, count + 1)]
