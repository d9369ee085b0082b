"""Sources name rows in plain torch, and say in numbers how."""

import pytest
import torch

from cce.indexing import Assignments, MultiplyShift, QuotientRemainder
from cce.indexing.sources import CircularPlaces, DigitRows, HashedRows, LearnedRows, OwnRow, SlotKind, describe, rows_of
from helpers import slow
from helpers.draws import seeded

IDS = torch.tensor([0, 3, 99, 41])


def test_an_own_row_is_the_id():
    assert OwnRow(100).rows(IDS).tolist() == [[0], [3], [99], [41]]
    (slot,) = OwnRow(100).describe()
    assert (slot.kind, slot.first_row, slot.num_rows) == (SlotKind.OWN, 0, 100)


def test_hashed_rows_lie_in_the_table_of_their_function():
    hashed = MultiplyShift(3, 10, generator=seeded())
    rows = HashedRows(hashed, range(3), (0, 50, 20)).rows(IDS)
    expected = [
        [first + slow.row(int(x), s, 10) for first, s in zip((0, 50, 20), hashed.seeds, strict=True)] for x in IDS
    ]
    assert rows.tolist() == expected


def test_learned_rows_are_the_stored_pointers():
    pointers = Assignments(100, 2, 10, generator=seeded())
    pointers.write(torch.arange(99), torch.full((99, 2), 7))
    pointers.write(torch.tensor([99]), torch.tensor([[3, 8]]))
    rows = LearnedRows(pointers, (0, 2), (100, 300)).rows(IDS)
    assert rows[:2].tolist() == [[107, 307]] * 2
    assert rows[2].tolist() == [103, 308]
    first, second = LearnedRows(pointers, (0, 2), (100, 300)).describe()
    assert first.num_ids == 100
    assert first.pointers is second.pointers is pointers.pointers.words
    assert [(slot.bits, slot.first_bit, slot.stride) for slot in (first, second)] == [(4, 0, 8), (4, 4, 8)]


def test_digits_are_rows_of_stacked_tables():
    source = DigitRows(QuotientRemainder((7, 5, 3), 100))
    assert source.rows(torch.tensor([99])).tolist() == [[99 % 7, 7 + 99 // 7 % 5, 12 + 99 // 35]]
    assert [(s.first_row, s.num_rows, s.step) for s in source.describe()] == [(0, 7, 1), (7, 5, 7), (12, 3, 35)]


@pytest.mark.parametrize("block_size", [1, 3, 4, 9])
def test_places_run_on_around_the_array_and_start_anew_with_each_block(block_size):
    hashed = MultiplyShift(1, 11, generator=seeded())
    rows = CircularPlaces(hashed, 4, block_size).rows(IDS)
    for x, places in zip(IDS.tolist(), rows.tolist(), strict=True):
        numbers = [x * 4 + i for i in range(4)]
        assert places == [(slow.row(p // block_size, hashed.seeds[0], 11) + p % block_size) % 11 for p in numbers]


def test_sources_share_the_slots_of_an_id():
    pointers, hashed = Assignments(100, 2, 10, generator=seeded()), MultiplyShift(2, 10, generator=seeded(1))
    sources = [LearnedRows(pointers, (0, 2), (0, 20)), HashedRows(hashed, (1, 3), (10, 30))]
    rows = rows_of(sources, IDS)
    assert torch.equal(rows[:, [0, 2]], sources[0].rows(IDS))
    assert torch.equal(rows[:, [1, 3]], sources[1].rows(IDS))
    kinds = [slot.kind for slot in describe(sources)]
    assert kinds == [SlotKind.LEARNED, SlotKind.HASHED] * 2
    assert [slot.first_row for slot in describe(sources)] == [0, 10, 20, 30]
