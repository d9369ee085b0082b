"""Engines: the same results in the same order, in one process or several."""

import os

import pytest

from cce.data.engine import Engine, open_engine


def square(number):
    return number * number, os.getpid()


def fail(number):
    raise ValueError(f"number must be even, got {number}.")


def test_one_job_works_in_this_process():
    with Engine(1) as engine:
        assert list(engine.map(square, range(4))) == [(n * n, os.getpid()) for n in range(4)]


def test_two_jobs_work_in_others_and_keep_the_order():
    with open_engine("local", 2) as engine:
        results = list(engine.map(square, range(20)))
        assert [result for result, _ in results] == [n * n for n in range(20)]
        assert os.getpid() not in {process for _, process in results}
        with pytest.raises(ValueError, match="number must be even, got 0"):
            list(engine.map(fail, range(3)))


def test_an_unknown_engine_and_no_jobs_are_refused():
    with pytest.raises(ValueError, match="engine must be local, ray or ray://host:port, got 'spark'"):
        open_engine("spark")
    with pytest.raises(ValueError, match="jobs must lie in"):
        Engine(0)
