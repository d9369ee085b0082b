"""Seconds add up by part, also of parts that fail."""

import time

import pytest

from cce.training.stopwatch import Stopwatch


def test_seconds_add_up_by_part():
    watch = Stopwatch()
    for _ in range(2):
        with watch("a"):
            time.sleep(0.01)
    with pytest.raises(ValueError, match="x"), watch("b"):
        raise ValueError("x")
    assert watch.seconds["a"] >= 0.02
    assert set(watch.seconds) == {"a", "b"}
