"""Splits: shares, times, columns and last rows, each as one would do it by hand."""

import numpy as np
import pytest
from scipy.stats import kstest

from cce.data.arrow.blocks import Words, as_values, save_block
from cce.data.preparation.job import Splitting
from cce.data.preparation.vocabulary import SplitBlock, split_codes, unit_hash


@pytest.fixture
def blocks(tmp_path):
    """Two blocks of 60 and 40 rows in two files, with users, times and a column of words."""
    generator = np.random.default_rng(0)
    made, columns = [], {"user": [], "timestamp": [], "fold": []}
    for number, count in enumerate((60, 40)):
        users, times = generator.integers(0, 12, count) * 1.0, generator.integers(0, 30, count) * 1.0
        folds = generator.integers(-1, 3, count).astype(np.int32)
        numbers = {"user": users, "timestamp": times}
        save_block(tmp_path / f"{number}", numbers, {"word fold": Words(folds, as_values(["p", "q", "r"]))})
        made.append(SplitBlock(tmp_path / f"{number}", number, count))
        for name, column in (("user", users), ("timestamp", times), ("fold", folds)):
            columns[name] += column.tolist()
    return made, columns


def codes(blocks, how):
    pieces = list(split_codes(blocks, how))
    assert [len(piece) for piece in pieces] == [block.num_rows for block in blocks]
    return np.concatenate(pieces).tolist()


def big(path, sizes):
    return [SplitBlock(path, number, size) for number, size in enumerate(sizes)]


def test_random_splits_have_their_shares_and_depend_on_the_seed(tmp_path):
    some = codes(big(tmp_path, (20_000, 30_000)), Splitting("random", 0.1, 0.2))
    assert [some.count(code) / 50_000 for code in range(3)] == pytest.approx([0.7, 0.1, 0.2], abs=0.01)
    assert some == codes(big(tmp_path, (50_000,)), Splitting("random", 0.1, 0.2))  # blocks do not matter
    assert some != codes(big(tmp_path, (50_000,)), Splitting("random", 0.1, 0.2, seed=1))


def test_in_order_the_last_rows_are_held_out(tmp_path):
    assert codes(big(tmp_path, (6, 4)), Splitting("order", 0.2, 0.1)) == [0] * 7 + [1] * 2 + [2]
    assert codes(big(tmp_path, (10,)), Splitting("order", 0, 0)) == [0] * 10


def test_the_last_file_is_held_out_in_halves(tmp_path):
    assert codes(big(tmp_path, (3, 5)), Splitting("last-file")) == [0, 0, 0, 1, 1, 2, 2, 2]


def test_the_latest_times_are_held_out_together(blocks):
    some, columns = blocks
    result = codes(some, Splitting("temporal", 0.2, 0.2))
    by_time = {}
    for time, code in zip(columns["timestamp"], result, strict=True):
        by_time.setdefault(time, set()).add(code)
    assert all(len(found) == 1 for found in by_time.values())
    in_order = [min(by_time[time]) for time in sorted(by_time)]
    assert in_order == sorted(in_order)
    assert [result.count(code) for code in range(3)] == pytest.approx([60, 20, 20], abs=6)
    assert set(codes(some, Splitting("temporal", 0.0, 0.0))) == {0}
    assert set(codes(some, Splitting("temporal", 0.3, 0.0))) == {0, 1}


def test_of_each_user_the_last_two_rows_are_held_out(blocks):
    some, columns = blocks
    expected = [0] * 100
    for user in set(columns["user"]):
        rows = [row for row in range(100) if columns["user"][row] == user]
        rows.sort(key=lambda row: (columns["timestamp"][row], row))
        for row, code in zip(rows[1:][-2:], [1, 2] if len(rows) > 2 else [2], strict=True):
            expected[row] = code
    assert codes(some, Splitting("last-two")) == expected


def test_hashes_are_uniform():
    numbers = unit_hash(np.arange(100_000), 0)
    assert (numbers.min() >= 0, numbers.max() < 1) == (True, True)
    assert kstest(numbers, "uniform").pvalue > 0.001
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.02


def test_a_hash_depends_on_the_number_and_the_seed_alone():
    whole = unit_hash(np.arange(1000), 3)
    assert (unit_hash(np.arange(500, 600), 3) == whole[500:600]).all()
    assert (unit_hash(np.arange(1000), 4) != whole).all()
