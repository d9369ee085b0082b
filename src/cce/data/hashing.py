"""Random numbers that depend on a row's number and a seed alone, so that any worker can draw them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ODD, _FIRST, _SECOND = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def unit_hash(numbers: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each number: the finaliser of splitmix64, as random as one can tell."""
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    bits = (numbers.astype(np.uint64) + np.uint64(1)) * _ODD + start
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    bits ^= bits >> np.uint64(31)
    return np.asarray((bits >> np.uint64(11)) * 2.0**-53)
