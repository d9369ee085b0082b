"""Bytes that stand for second moments and for counts, and random numbers in compiled loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from cce.compiled import compile_loops, memory
from cce.kernels.cpu.rows import scramble

LARGEST = 127
SHIFT = 21  # bits of a float32 that a level of a second moment leaves out: two of its mantissa stay
OFFSET = (127 - 40) << (23 - SHIFT)  # of levels, which begin at 2**-40 and end at 2**24
NUM_GROUPS = 35  # of rows whose counts are in one octave

LEVEL_VALUES = ((np.arange(256, dtype=np.int32) + OFFSET) << SHIFT).view(np.float32)
LEVEL_VALUES[0] = 0
_MANTISSA = np.where(np.arange(256) < 8, np.arange(256), 8 + np.arange(256) % 8)
COUNT_VALUES = (_MANTISSA * 2.0 ** np.maximum(np.arange(256) // 8 - 1, 0)).astype(np.float64)
GROUPS = np.floor(np.log2(np.maximum(COUNT_VALUES, 1))).astype(np.int64)
_SHARES = 0.5 ** np.arange(64)  # of an octave: powers of two, so that a product is as exact as a quotient

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_16, _40, _MASK_24 = np.uint64(16), np.uint64(40), np.uint64(0xFF_FFFF)
_FRACTION = np.float32(2.0**-24)
bits_of = memory.bits_of


@compile_loops
def uniform_at(key: Any, place: Any) -> Any:
    """See `indexing.noise.uniform`."""
    return np.float32(scramble(place * GOLDEN + key) >> _40) * _FRACTION


@compile_loops
def uniform_pair(key: Any, place: Any) -> Any:
    """See `indexing.noise.uniform_pair`."""
    bits = scramble(place * GOLDEN + key)
    return np.float32(bits >> _40) * _FRACTION, np.float32((bits >> _16) & _MASK_24) * _FRACTION


@compile_loops
def encode_level(square: Any, noise: Any) -> Any:
    """The byte of a second moment; it is rounded up if `noise`, in [0, 1), reaches beyond the next."""
    bits = np.int64(bits_of(square)) + np.int64(noise * np.float32(1 << SHIFT))
    level: Any = min(max((bits >> SHIFT) - OFFSET, 1), 255)
    return np.uint8(level)


@compile_loops
def encode_count(count: Any, noise: Any) -> Any:
    """The byte of a count: exact below 16, beyond it one of eight in an octave, rounded at random."""
    if count < 16:
        return np.uint8(count)
    octave = (bits_of(count) >> 52) - 1026
    mantissa = np.int64(np.floor(count * _SHARES[octave] + np.float64(noise)))
    return np.uint8(min(octave * 8 + mantissa, 255))
