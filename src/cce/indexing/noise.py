"""Random numbers that are a function of where they are used: a counter-based generator.

The number of value `place` is a hash of `place` and a key (Salmon et al., "Parallel random numbers: as easy as 1, 2,
3", 2011; the hash is splitmix64's). So threads and processes may share the work as they like, and a resumed run goes
on as it would have.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cce.indexing.multiply_shift import MIX_1, MIX_2, scramble

GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # splitmix64's step, as a signed integer
GOLDEN_24 = 0x9E3779  # the golden ratio, modulo 1, in 24 bits
GOLDEN_32 = 0x9E3779B9
MASK_24, MASK_32 = 0xFF_FFFF, 0xFFFF_FFFF
FRACTION = 2.0**-24


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


def uniform_pair(key: int, places: Tensor) -> tuple[Tensor, Tensor]:
    """Two float32 in [0, 1) for each place, of the same hash; the first is that of `uniform`."""
    bits = scramble(places * GOLDEN + key)
    first, second = (((bits >> shift) & MASK_24).float() * FRACTION for shift in (40, 16))
    return first, second


def row_noise(key: int, rows: Tensor, width: int, uses: Tensor) -> Tensor:
    """A float32 in [0, 1) for each value of some rows, `(n, width)`, that depends on how often the row was used `(n)`.

    A row has a 32-bit seed, and a value is a hash of the seed and its column (murmur3's finaliser). From use to use it
    is shifted by the golden ratio, modulo 1: a Kronecker sequence, which fills [0, 1) evenly. Errors of rounding the
    same steps again and again then cancel, where those of independent numbers grow as a random walk.
    """
    seeds = (scramble(rows * GOLDEN + key) >> 32).unsqueeze(1)
    mixed = (seeds + torch.arange(width, device=rows.device) * GOLDEN_32) & MASK_32
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & MASK_32
    return (((mixed >> 8) + uses.long().unsqueeze(1) * GOLDEN_24) & MASK_24).float() * FRACTION
