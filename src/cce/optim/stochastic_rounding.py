"""Stochastic rounding with random numbers that are a function of where they are used.

A number is rounded up with the probability of its fraction, so that steps much smaller than the distance of two codes
still add up on average. The random number of value `place` of a table is a hash of `place` and a key, which is another
one at every step (a counter-based generator: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011; the
hash is splitmix64's). So threads and processes may share the work out as they like, and a resumed run goes on as it
would have.

`spread` gives numbers that are uniform as well, but those of one place, use after use, fill [0, 1) evenly (a Kronecker
sequence: each is the last plus the golden ratio, modulo 1). Errors of rounding the same steps again and again then
cancel, where those of independent numbers grow as a random walk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cce.compiled import compile_loops
from cce.indexing import MIX_1, MIX_2, scramble

if TYPE_CHECKING:
    from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # splitmix64's step, as a signed integer
FRACTION = 2.0**-24
_MIX_1, _MIX_2, _GOLDEN = (np.uint64(number % 2**64) for number in (MIX_1, MIX_2, GOLDEN))
_27, _30, _31, _40 = (np.uint64(shift) for shift in (27, 30, 31, 40))
_FRACTION = np.float32(FRACTION)
GOLDEN_24 = 0x9E3779  # the golden ratio, modulo 1, in 24 bits
MASK_24 = 0xFF_FFFF


def make_key(seed: int, counter: int) -> int:
    """The key of use number `counter` of a seed: a signed 64-bit integer."""
    state = (seed + counter * GOLDEN) % 2**64
    for shift, factor in ((30, MIX_1), (27, MIX_2)):
        state = (state ^ (state >> shift)) * factor % 2**64
    state ^= state >> 31
    return state - 2**64 if state >= 2**63 else state


def uniform(key: int, places: Tensor) -> Tensor:
    """A float32 in [0, 1) for each place, with 24 random bits."""
    bits = scramble(places * GOLDEN + key)
    return ((bits >> 40) & MASK_24).float() * FRACTION


def spread(key: int, places: Tensor, uses: Tensor) -> Tensor:
    """A float32 in [0, 1) for each place: that of its use number `uses`, spread evenly over all uses."""
    numbers = uniform(key, places) + ((uses.long() * GOLDEN_24) & MASK_24).float() * FRACTION
    return numbers - numbers.floor()


@compile_loops
def uniform_at(key: Any, place: Any) -> Any:
    """The same for one place, both of them uint64."""
    x = place * _GOLDEN + key
    x = (x ^ (x >> _30)) * _MIX_1
    x = (x ^ (x >> _27)) * _MIX_2
    x = x ^ (x >> _31)
    return np.float32(x >> _40) * _FRACTION


@compile_loops
def shift_at(use: Any) -> Any:
    """What `spread` adds for a use number."""
    return np.float32((np.int64(use) * GOLDEN_24) & MASK_24) * _FRACTION


@compile_loops
def spread_at(key: Any, place: Any, shift: Any) -> Any:
    """`spread` for one place, whose use has this shift."""
    number = uniform_at(key, place) + shift
    return number - np.floor(number)
