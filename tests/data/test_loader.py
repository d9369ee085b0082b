"""Batches: every row once an epoch, shared out over ranks, and resumed to the row."""

import re

import numpy as np
import pytest
import torch

from cce.data import PreparedData, SyntheticConfig, prepare_synthetic
from cce.data.loader import Loader, SplitRows
from cce.data.record_format import create_files, id_dtype, offsets_file, record_dtype, rows_file, values_file, write_at
from cce.schema import Feature, Schema

NUM_ROWS = 1003


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Row `r` has id `r` in one feature and a bag of `r % 4` ids in the other; its label is `r` too."""
    folder = tmp_path_factory.mktemp("rows")
    schema = Schema((Feature("row", 2000), Feature("bag", 2000, multi_hot=True)))
    lengths = np.arange(NUM_ROWS) % 4
    create_files(folder, schema, {"train": NUM_ROWS}, {("train", 1): int(lengths.sum())})
    records = np.zeros(NUM_ROWS, record_dtype(schema))
    records["label"] = records["id0"] = np.arange(NUM_ROWS)
    write_at(folder / rows_file("train"), 0, records)
    write_at(folder / values_file("train", 1), 0, np.repeat(np.arange(NUM_ROWS), lengths).astype(id_dtype(2000)))
    write_at(folder / offsets_file("train", 1), 1, lengths.cumsum())
    return SplitRows(folder, "train", schema)


def rows_of(batches):
    return [batch.labels.long().tolist() for batch in batches]


def flat(lists):
    return [row for rows in lists for row in rows]


def loader(data, **options):
    return Loader(data, **{"batch_size": 10, "seed": 3, **options})


@pytest.mark.parametrize("batch_size", [1, 10, 128, 1003, 5000])
def test_an_epoch_has_every_row_once_and_the_next_has_another_order(data, batch_size):
    batches = loader(data, batch_size=batch_size)
    first, second = rows_of(batches), rows_of(batches)
    assert sorted(flat(first)) == sorted(flat(second)) == list(range(NUM_ROWS))
    assert flat(first) != flat(second)
    assert len(first) == len(batches) == -(-NUM_ROWS // batch_size)
    assert {len(rows) for rows in first[:-1]} <= {batch_size}


def test_without_shuffling_rows_come_in_their_order(data):
    assert flat(rows_of(loader(data, shuffle=False))) == list(range(NUM_ROWS))


def test_the_same_seed_gives_the_same_batches_and_another_seed_others(data):
    assert rows_of(loader(data)) == rows_of(loader(data))
    assert rows_of(loader(data)) != rows_of(loader(data, seed=4))


def test_the_batch_size_does_not_change_the_order(data):
    assert flat(rows_of(loader(data, batch_size=7))) == flat(rows_of(loader(data, batch_size=500)))


@pytest.mark.parametrize("world_size", [2, 3, 16])
@pytest.mark.parametrize("shuffle", [True, False])
def test_ranks_share_out_every_batch_without_overlap(data, world_size, shuffle):
    shares = [
        rows_of(loader(data, batch_size=16, shuffle=shuffle, rank=rank, world_size=world_size))
        for rank in range(world_size)
    ]
    together = [flat(batch) for batch in zip(*shares, strict=True)]
    assert together == rows_of(loader(data, batch_size=16, shuffle=shuffle))


@pytest.mark.parametrize("batch_size", [10, 400])
def test_bags_stay_with_their_rows(data, batch_size):
    for batch in loader(data, batch_size=batch_size):
        rows, count = batch.labels.long().tolist(), len(batch)
        assert batch.ids[:count].tolist() == rows
        assert batch.offsets.shape == (2 * count + 1,)
        for index, row in enumerate(rows):
            bag = batch.ids[batch.offsets[count + index] : batch.offsets[count + index + 1]]
            assert bag.tolist() == [row] * (row % 4)


@pytest.mark.parametrize("stop", [0, 1, 37, 100, 101])
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_position_is_restored_exactly(data, stop, world_size):
    whole = loader(data)
    wanted = [rows_of(whole), rows_of(whole)]
    first = loader(data)
    first.epoch = 1
    taken = [batch.labels.long().tolist() for _, batch in zip(range(stop), first, strict=False)]
    state = first.state_dict()
    shares = []
    for rank in range(world_size):  # a position of one rank is that of all
        later = loader(data, rank=rank, world_size=world_size)
        later.load_state_dict(state)
        shares.append(rows_of(later))
        assert later.epoch == 2
    rest = [flat(batch) for batch in zip(*shares, strict=True)]
    assert taken == wanted[1][:stop]
    assert rest == wanted[1][stop:]


def test_a_loop_that_was_left_goes_on_where_it_was(data):
    batches = loader(data)
    whole = rows_of(loader(data))
    assert rows_of([next(iter(batches))]) == whole[:1]
    assert rows_of(batches) == whole[1:]
    assert batches.state_dict()["epoch"] == 1


def test_loading_a_position_in_the_middle_of_a_loop_moves_the_loop(data):
    batches, seen = loader(data), []
    state = batches.state_dict()
    for batch in batches:
        seen.append(batch.labels.long().tolist())
        if len(seen) == 3:
            batches.load_state_dict(state)
    assert seen[3:] == rows_of(loader(data))


def test_a_position_of_another_order_is_rejected(data):
    state = loader(data).state_dict()
    with pytest.raises(ValueError, match=re.escape("seed must be that of the saved position, 3, got 4.")):
        loader(data, seed=4).load_state_dict(state)
    with pytest.raises(ValueError, match="num_rows must be that of the saved position, 7, got 1003"):
        loader(data).load_state_dict({**state, "num_rows": 7})
    with pytest.raises(ValueError, match="position must lie in"):
        loader(data).load_state_dict({**state, "position": 2000})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must lie in [1, 2**31), got 0."),
        ({"rank": 2, "world_size": 2}, "rank must lie in [0, 2), got 2."),
        ({"world_size": 0}, "world_size must lie in [1, 2**31), got 0."),
        ({"seed": -1}, "seed must lie in [0, 2**63), got -1."),
    ],
)
def test_impossible_sizes_are_rejected_by_name(data, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        loader(data, **options)


def test_weights_and_dense_columns_are_cut_with_the_rows(tmp_path):
    config = SyntheticConfig(num_rows=1000, vocabulary_sizes=(50, 9), num_dense=3)
    prepare_synthetic(tmp_path / "x", config, progress=False)
    prepared = PreparedData.open(tmp_path / "x")
    small, large = (list(prepared.loader("train", batch_size=size)) for size in (3, 800))
    for name in ("dense", "ids", "labels"):
        assert torch.equal(torch.cat([getattr(batch, name) for batch in small]), getattr(large[0], name))
