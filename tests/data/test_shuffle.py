"""The order of an epoch: every row once, the same for the same seed, blocks kept together in windows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cce.data.loader import EpochShuffle, shuffled

SIZES = st.tuples(st.integers(0, 200), st.integers(1, 20), st.integers(1, 60))


@pytest.mark.slow
@settings(max_examples=60)
@given(SIZES, st.integers(0, 3), st.integers(0, 3))
def test_every_row_comes_once_whatever_the_sizes(sizes, seed, epoch):
    num_rows, block, window = sizes
    order = EpochShuffle(num_rows, seed=seed, epoch=epoch, block_rows=block, window_rows=window)
    assert sorted(order.rows(0, num_rows).tolist()) == list(range(num_rows))


@pytest.mark.slow
@settings(max_examples=60)
@given(SIZES, st.data())
def test_a_stretch_is_that_of_the_whole(sizes, data):
    num_rows, block, window = sizes
    start = data.draw(st.integers(0, num_rows))
    stop = data.draw(st.integers(start, num_rows))
    whole = EpochShuffle(num_rows, seed=1, epoch=2, block_rows=block, window_rows=window).rows(0, num_rows)
    part = EpochShuffle(num_rows, seed=1, epoch=2, block_rows=block, window_rows=window).rows(start, stop)
    assert part.tolist() == whole[start:stop].tolist()


def test_seeds_and_epochs_have_orders_of_their_own():
    orders = [EpochShuffle(1000, seed=s, epoch=e).rows(0, 1000).tolist() for s in range(3) for e in range(3)]
    assert len({tuple(order) for order in orders}) == 9
    assert orders[4] == EpochShuffle(1000, seed=1, epoch=1).rows(0, 1000).tolist()


def test_a_window_has_whole_blocks_and_mixes_them():
    order = EpochShuffle(1000, seed=0, epoch=0, block_rows=10, window_rows=100)
    first = order.rows(0, 100)
    blocks = set((first // 10).tolist())
    assert len(blocks) == 10
    assert blocks != set(range(10))
    assert len(set((first[:10] // 10).tolist())) > 3  # the first rows are not those of one block


def test_windows_are_shuffled_each_in_its_own_way():
    order = EpochShuffle(1000, seed=0, epoch=0, block_rows=100, window_rows=100)
    within = [(order.rows(start, start + 100) % 100).tolist() for start in range(0, 1000, 100)]
    assert len({tuple(rows) for rows in within}) == 10


def test_a_short_last_block_may_come_anywhere():
    indices = set()
    for epoch in range(30):
        rows = EpochShuffle(95, seed=0, epoch=epoch, block_rows=10, window_rows=10).rows(0, 95)
        indices.add(int(np.flatnonzero(rows == 94)[0]) // 10)
    assert len(indices) > 5


def test_the_order_is_the_same_for_ever():
    """Numbers that would change with the random bits: a saved position must mean the same rows after an update."""
    assert shuffled(8, (0, 0, 0)).tolist() == FIRST
    assert sorted(shuffled(1, (5,)).tolist()) == [0]
    assert shuffled(0, (5,)).tolist() == []


def test_every_place_is_as_likely():
    counts = np.zeros((6, 6))
    for seed in range(3000):
        counts[np.arange(6), shuffled(6, (seed,))] += 1
    assert counts == pytest.approx(np.full((6, 6), 500), abs=100)  # five standard deviations


FIRST = [3, 2, 1, 6, 0, 7, 4, 5]
