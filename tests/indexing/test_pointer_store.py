"""A store of pointers: every width, in memory, in a file and shared, read and written alike."""

import copy
import pickle
import re
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch

from cce.indexing import PointerStore
from helpers.draws import seeded

NUM_IDS, NUM_COLUMNS = 53, 3  # 159 pointers: no width but whole bytes fills its last byte, or ends with a group
WIDTHS = {2: 1, 8: 3, 16: 4, 256: 8, 1_024: 10, 5_000: 13, 65_536: 16, 65_537: 32}

every_width = pytest.mark.parametrize("num_rows", WIDTHS)


def some_rows(num_rows, num_ids=NUM_IDS, seed=0):
    rows = torch.randint(0, num_rows, (num_ids, NUM_COLUMNS), generator=seeded(seed))
    rows[0, 0], rows[-1, -1] = num_rows - 1, num_rows - 1
    return rows


def filled(num_rows, seed=0, *, shared=False, **options):
    store = PointerStore(NUM_IDS, NUM_COLUMNS, num_rows, **options)
    if shared:
        store.share_memory_()
    store.write(0, some_rows(num_rows, seed=seed))
    return store


def rows_of(store):
    return store.read(torch.arange(store.num_ids))


@every_width
def test_rows_are_read_as_they_were_written_and_bytes_are_those_of_the_width(num_rows):
    store, rows = filled(num_rows), some_rows(num_rows)
    assert store.bits == WIDTHS[num_rows]
    assert store.nbytes == -(-NUM_IDS * NUM_COLUMNS * store.bits // 8) + 3
    assert torch.equal(rows_of(store), rows)
    assert torch.equal(torch.cat(list(store.blocks())), rows)
    assert torch.equal(store.to_tensor().long(), rows)
    assert store.to_tensor().dtype is (torch.uint8 if store.bits <= 8 else torch.int32)


@every_width
@pytest.mark.parametrize("shape", [(), (2, 3), (2, 0)])
def test_ids_of_any_shape_and_width_are_answered_as_int64(num_rows, shape):
    ids = torch.randint(0, NUM_IDS, shape, generator=seeded(1), dtype=torch.int32)
    found = filled(num_rows).read(ids)
    assert found.dtype is torch.int64
    assert torch.equal(found, some_rows(num_rows)[ids.long()])


@every_width
@pytest.mark.parametrize("size", [1, 2, 5, 7, 52])
def test_writing_block_by_block_leaves_the_neighbours_in_a_byte_alone(num_rows, size):
    store, rows = PointerStore(NUM_IDS, NUM_COLUMNS, num_rows), some_rows(num_rows)
    starts = torch.arange(0, NUM_IDS, size)
    for start in starts[torch.randperm(len(starts), generator=seeded(2))].tolist():
        store.write(start, rows[start : start + size])
    assert torch.equal(rows_of(store), rows)
    store.write(20, torch.zeros(1, NUM_COLUMNS, dtype=torch.int64))
    rows[20] = 0
    assert torch.equal(rows_of(store), rows)


@pytest.mark.parametrize("bits", [4, 5, 8, 12, 16, 32])
def test_a_width_may_be_given_by_hand(bits):
    store = filled(16, bits=bits)
    assert (store.bits, store.nbytes) == (bits, -(-NUM_IDS * NUM_COLUMNS * bits // 8) + 3)
    assert torch.equal(rows_of(store), some_rows(16))


@every_width
@pytest.mark.parametrize("wrong", [-1, None])
def test_rows_that_there_are_not_cannot_be_written(num_rows, wrong):
    store = filled(num_rows)
    before = store.words.clone()
    wrong = num_rows if wrong is None else wrong
    with pytest.raises(ValueError, match=re.escape(f"rows must lie in [0, {num_rows}), got {wrong} to {wrong}.")):
        store.write(3, torch.full((2, NUM_COLUMNS), wrong))
    assert torch.equal(store.words, before)


@pytest.mark.parametrize(("first", "shape"), [(52, (2, 3)), (-1, (2, 3)), (0, (2, 2)), (0, (6,))])
def test_rows_of_other_ids_or_columns_cannot_be_written(first, shape):
    with pytest.raises(ValueError, match=r"rows must be \(\d+ or less, 3\) from id"):
        filled(16).write(first, torch.zeros(shape, dtype=torch.int64))


# -- copies and processes ----------------------------------------------------------------------------------------------


def pickled(store):
    return pickle.loads(pickle.dumps(store))


@every_width
@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
@pytest.mark.parametrize("shared", [False, True])
def test_a_copy_is_equal_and_does_not_write_into_the_first(num_rows, copied, shared):
    first = filled(num_rows, shared=shared)
    second = copied(first)
    assert torch.equal(second.words, first.words)
    second.write(0, some_rows(num_rows, seed=1))
    assert torch.equal(rows_of(first), some_rows(num_rows))
    assert torch.equal(rows_of(second), some_rows(num_rows, seed=1))


def write_elsewhere(store, num_rows):
    """In another process."""
    assert torch.equal(rows_of(store), some_rows(num_rows))
    store.write(0, some_rows(num_rows, seed=1))


def replace_elsewhere(store, num_rows):
    """In another process."""
    assert store.replace(filled(num_rows, seed=1)) is store


@pytest.fixture(scope="module")
def other_process():
    with ProcessPoolExecutor(1, mp_context=torch.multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_rows", "change"), [(2, write_elsewhere), (16, replace_elsewhere), (300, write_elsewhere)]
)
def test_another_process_sees_the_same_pointers_and_changes_them(other_process, num_rows, change):
    store = filled(num_rows, shared=True)
    other_process.submit(change, store, num_rows).result(120)
    assert torch.equal(rows_of(store), some_rows(num_rows, seed=1))


def test_shared_pointers_are_replaced_in_place_while_their_sizes_stay():
    store = filled(16, shared=True)
    assert store.is_shared
    assert not filled(16).is_shared
    address = store.words.data_ptr()
    assert store.replace(filled(16, seed=1)) is store
    assert (store.words.data_ptr(), rows_of(store).tolist()) == (address, some_rows(16, seed=1).tolist())


@pytest.mark.parametrize("num_rows", [15, 17])
def test_shared_pointers_of_other_sizes_are_shared_elsewhere(num_rows):
    """Other processes would follow them beyond the rows they know."""
    store = filled(16, shared=True)
    new = store.replace(filled(num_rows, seed=1))
    assert new is not store
    assert new.is_shared
    assert torch.equal(rows_of(store), some_rows(16))


# -- state -------------------------------------------------------------------------------------------------------------


@every_width
def test_a_state_makes_another_store_equal_to_the_bit(num_rows):
    first, second = filled(num_rows), filled(num_rows, seed=1)
    state = first.state()
    second.load(state["pointers"], state["pointer_shape"])
    assert torch.equal(first.words, second.words)
    assert first.words.data_ptr() != second.words.data_ptr()
    assert sum(tensor.nbytes for tensor in state.values()) == first.nbytes


@pytest.mark.parametrize("num_rows", [1, 3, 9, 200, 60_000, 65_537])
def test_a_state_that_names_rows_beyond_the_last_is_refused_and_changes_nothing(num_rows):
    store = filled(num_rows)
    state, before = {name: tensor.clone() for name, tensor in store.state().items()}, store.words.clone()
    state["pointers"][:4] = 0xFF
    with pytest.raises(ValueError, match=re.escape(f"they must lie in [0, {num_rows}).")):
        store.load(state["pointers"], state["pointer_shape"])
    assert torch.equal(store.words, before)


@pytest.mark.parametrize("num_ids", [52, 54, 106])
def test_a_state_of_other_sizes_is_refused_even_if_it_has_as_many_bytes(num_ids):
    other = PointerStore(num_ids, NUM_COLUMNS, 2).state()
    assert num_ids != 54 or len(other["pointers"]) == len(filled(2).words) + 1
    message = f"the checkpoint has ({num_ids}, 3) of 1 bits, the module (53, 3) of 2 bits."
    with pytest.raises(ValueError, match=re.escape(message)):
        filled(4).load(other["pointers"], other["pointer_shape"])


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        (torch.zeros(83, dtype=torch.uint8), None),
        (torch.zeros(53, 3), None),
        (torch.zeros(83, dtype=torch.uint8), torch.empty(53, 3, 5, 0)),
        (torch.zeros(82, dtype=torch.uint8), torch.empty(53, 3, 4, 0)),
        (torch.zeros(83, 1, dtype=torch.uint8), torch.empty(53, 3, 4, 0)),
        (torch.zeros(83), torch.empty(53, 3, 4, 0)),
        (torch.zeros(83, dtype=torch.uint8), torch.empty(53, 3, 4)),
        (torch.zeros(83, dtype=torch.uint8), torch.tensor([53, 3, 4])),
        (torch.zeros(83, dtype=torch.uint8), torch.empty(())),
    ],
)
def test_a_damaged_state_is_refused_in_a_line(words, shape):
    with pytest.raises(ValueError, match=r"^they must (fit their|have a) pointer_shape.*\.$"):
        filled(16).load(words, shape)
