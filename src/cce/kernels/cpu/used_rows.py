"""The rows that a batch used, each once and in order: what a sparse gradient needs."""

from __future__ import annotations

from typing import Any

import numpy as np

from cce.compiled import compile_loops, memory
from cce.kernels.cpu.rows import BLOCK

Array = np.ndarray[Any, Any]

count_bits = memory.count_bits
ONE, LOW_SIX, SIX = np.uint64(1), np.uint64(63), np.uint64(6)


@compile_loops
def renumber(
    rows: Array, start: Any, sizes: Array, chunk: Any, num_slots: Any, bits: Array, ranks: Array, to: Array
) -> Any:
    """Name every row of a feature by its place among the rows used: how many are used; `to` gets the names.

    Rows lie in chunks of room for `chunk` ids, of which `sizes` are there. `bits` has a bit for every row of the
    codebook, all zero at first, and `ranks` a number for each of its words.
    """
    for c in range(len(sizes)):
        for i in range(sizes[c]):
            at = _place(start, c * chunk + i, num_slots)
            if rows[at] >= 0:
                for s in range(num_slots):
                    row = np.uint64(rows[at + np.uint64(s * BLOCK)])
                    bits[row >> SIX] |= ONE << (row & LOW_SIX)
    used = np.uint64(0)
    for word in range(len(bits)):
        ranks[word] = used
        used += count_bits(bits[word])
    for c in range(len(sizes)):
        for i in range(sizes[c]):
            at = _place(start, c * chunk + i, num_slots)
            if rows[at] < 0:
                to[at] = -1
            else:
                for _ in range(num_slots):
                    row = np.uint64(rows[at])
                    below = bits[row >> SIX] & ((ONE << (row & LOW_SIX)) - ONE)
                    to[at] = np.int32(ranks[row >> SIX] + count_bits(below))
                    at += np.uint64(BLOCK)
    return np.int64(used)


@compile_loops
def _place(start: Any, i: Any, num_slots: Any) -> Any:
    """Where the row of slot 0 of id `i` lies."""
    return np.uint64(start + i // BLOCK * BLOCK * num_slots + i % BLOCK)


@compile_loops
def list_rows(bits: Array, into: Array) -> None:
    """The rows whose bits are set, in order."""
    at = 0
    for word in range(len(bits)):
        left = bits[word]
        while left:
            lowest = left & (~left + ONE)
            into[at] = word * 64 + np.int64(count_bits(lowest - ONE))
            at += 1
            left ^= lowest


@compile_loops
def renumber_features(
    places: Array,
    rows: Array,
    starts: Array,
    sizes: Array,
    chunk: Any,
    num_slots: Array,
    bits: Array,
    ranks: Array,
    words: Array,
    to: Array,
    counts: Array,
) -> None:
    """`renumber` the features at `places`; feature `f` has the words from `words[f]` on, and uses `counts[f]` rows."""
    for f in places:
        own = slice(words[f], words[f + 1])
        counts[f] = renumber(rows, starts[f], sizes[f], chunk, num_slots[f], bits[own], ranks[own], to)


@compile_loops
def list_features(places: Array, bits: Array, words: Array, ends: Array, into: Array) -> None:
    """The rows used by the features at `places`, feature `f`'s from `ends[f]` on."""
    for f in places:
        list_rows(bits[words[f] : words[f + 1]], into[ends[f] : ends[f + 1]])
