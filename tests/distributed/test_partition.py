"""Work is shared out evenly, and all of it."""

from cce.distributed import partition_work


def test_the_heaviest_come_first_and_loads_are_even():
    assert partition_work([5, 3, 3, 2, 1], 2) == [0, 1, 1, 0, 1]
    assert partition_work([1, 10], 2) == [1, 0]


def test_one_rank_does_everything_and_no_work_is_no_work():
    assert partition_work([2, 1, 4], 1) == [0, 0, 0]
    assert partition_work([], 3) == []


def test_more_ranks_than_pieces_leave_some_idle():
    assert sorted(partition_work([1, 1], 5)) == [0, 1]
