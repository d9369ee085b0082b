"""An open row map: any 64-bit ids, in the order of their scrambled keys."""

import copy

import pytest
import torch

from cce.indexing import OpenRowMap, scramble, unscramble

EDGES = torch.tensor([0, -1, 1, 2**63 - 1, -(2**63) + 1, 2**32, -(2**32)])


def some_ids(count, seed=0):
    drawn = torch.randint(-(2**63), 2**63 - 1, (count,), generator=torch.Generator().manual_seed(seed))
    return torch.cat([EDGES, drawn])[:count].unique()


def map_of(ids):
    row_map = OpenRowMap()
    row_map.insert(ids[::2])
    row_map.insert(ids[1::2])
    return row_map


def test_scrambling_can_be_undone():
    ids = torch.cat([EDGES, some_ids(1000)])
    assert torch.equal(unscramble(scramble(ids)), ids)


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_each_id_has_a_row_of_its_own_and_no_other_id_has_one(count):
    ids = some_ids(count)
    row_map, others = map_of(ids), some_ids(1000, seed=1)
    assert len(ids) == count
    others = others[~torch.isin(others, ids)]
    assert row_map(ids).sort().values.tolist() == [*range(1, count + 1)]
    assert not row_map(others).any()
    assert torch.equal(torch.cat(list(row_map.ids())), ids[row_map.in_order(ids)])


def test_rows_do_not_depend_on_the_order_in_which_ids_came():
    ids = some_ids(500)
    shuffled = ids[torch.randperm(500, generator=torch.Generator().manual_seed(2))]
    assert torch.equal(map_of(ids).keys, map_of(shuffled).keys)


def test_the_directory_says_where_keys_with_the_same_top_bits_begin():
    row_map = map_of(some_ids(1000))
    tops = (row_map.keys >> row_map.shift) + (len(row_map.starts) - 1) // 2
    expected = torch.cat([torch.zeros(1), torch.bincount(tops, minlength=len(row_map.starts) - 1).cumsum(0)])
    assert row_map.starts.tolist() == expected.tolist()
    assert row_map.nbytes / 1000 <= 9.1


def test_ids_that_lose_their_rows_are_unknown_and_the_others_move_up():
    ids = some_ids(300)
    row_map = map_of(ids)
    ordered = torch.cat(list(row_map.ids()))
    kept = torch.arange(300) % 3 > 0
    row_map.keep(kept)
    assert row_map(ordered[kept]).tolist() == [*range(1, 201)]
    assert not row_map(ordered[~kept]).any()


def test_a_saved_map_is_the_same_map_whatever_the_size_of_the_other():
    row_map, other = map_of(some_ids(100)), map_of(some_ids(300, seed=3))
    other.load_state_dict(row_map.state_dict())
    assert torch.equal(other(some_ids(100)), row_map(some_ids(100)))
    assert torch.equal(copy.deepcopy(row_map).starts, row_map.starts)
    with pytest.raises(RuntimeError, match="keys mismatch for keys: they must rise"):
        other.load_state_dict({"keys": row_map.keys.flip(0)})


def test_a_program_finds_rows_by_halving(monkeypatch):
    ids = some_ids(1000)
    row_map = map_of(ids)
    asked = torch.cat([ids, some_ids(100, seed=1)])
    expected = row_map(asked)
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    assert torch.equal(row_map(asked), expected)
