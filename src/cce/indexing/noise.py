"""Random numbers that are a function of where they are used: a counter-based generator.

The number of value `place` is a hash of `place` and a key (Salmon et al., "Parallel random numbers: as easy as 1, 2,
3", 2011; the hash is splitmix64's). So threads and processes may share the work as they like, and a resumed run goes
on as it would have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from cce.indexing.multiply_shift import MIX_1, MIX_2, scramble

if TYPE_CHECKING:
    from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # splitmix64's step, as a signed integer
GOLDEN_24 = 0x9E3779  # the golden ratio, modulo 1, in 24 bits
MASK_24 = 0xFF_FFFF
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


def uniform_row(key: int, rows: Tensor, width: int) -> Tensor:
    """A float32 in [0, 1) for each value of some rows: `(n, width)`; two values share a hash."""
    pairs = -(-width // 2)
    bits = scramble((rows.unsqueeze(1) * pairs + torch.arange(pairs, device=rows.device)) * GOLDEN + key)
    numbers = torch.stack([(bits >> 40) & MASK_24, (bits >> 16) & MASK_24], dim=2).flatten(1)
    return numbers[:, :width].float() * FRACTION


def spread(numbers: Tensor, uses: Tensor) -> Tensor:
    """Uniform numbers, those of one place shifted from use to use so that they fill [0, 1) evenly.

    A Kronecker sequence: each is the last plus the golden ratio, modulo 1. Errors of rounding the same steps again and
    again then cancel, where those of independent numbers grow as a random walk.
    """
    numbers = numbers + ((uses.long() * GOLDEN_24) & MASK_24).float() * FRACTION
    return numbers - numbers.floor()
