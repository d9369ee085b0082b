"""Strings and bytes → 64-bit ids, the same on every machine: FNV-1a (Fowler, Noll, Vo), then the mixer of splitmix64.

The hash of a value is that of its bytes, of a string those of its UTF-8 text. All values take a byte at a time
together, so NumPy is fast enough; neither torch nor numba is needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

FNV_START, FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))  # shifts and factors of splitmix64 (Steele, Lea, Flood 2014)
HASHED = 1 << 20  # texts at a time
FEW = 16  # texts, up to which a loop of Python is faster than NumPy, a byte at a time
ARROW_TEXT = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")


class Texts(NamedTuple):
    """Texts in UTF-8: that of index `i` is `text[offsets[i] : offsets[i + 1]]`."""

    offsets: np.ndarray  # int64
    text: np.ndarray  # uint8

    @classmethod
    def of(cls, values: Any) -> Texts:
        """The texts of a list of strings or bytes."""
        try:
            encoded = [value.encode() if isinstance(value, str) else memoryview(value) for value in values]
        except TypeError:
            at, wrong = next((i, v) for i, v in enumerate(values) if not isinstance(v, str | bytes))
            raise TypeError(f"values must be strings or bytes, got {wrong!r:.80} at index {at}.") from None
        offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return cls(offsets, np.frombuffer(b"".join(encoded), np.uint8))


def hash_ids(values: Any) -> np.ndarray:
    """The 64-bit hashes of strings or bytes, as int64: ids for open tables.

    The result is pinned: it is the same in every version, on every platform.
    values: a list, a NumPy array, a pyarrow array, or a pandas or polars Series, without missing values.
    """
    if hasattr(values, "to_arrow"):  # polars
        values = values.to_arrow()
    elif hasattr(getattr(values, "array", None), "__arrow_array__"):  # pandas, if its strings are Arrow's
        values = values.array.__arrow_array__()
    if hasattr(values, "buffers") or hasattr(values, "chunks"):
        return _hash_arrow(values)
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise TypeError(f"values must be a list or an array of strings or bytes, got {values!r:.80}.")
    shape = np.shape(values) if isinstance(values, np.ndarray) else (len(values),)
    items = values.reshape(-1).tolist() if isinstance(values, np.ndarray) else list(values)
    return mix(fnv1a(Texts.of(items))).view(np.int64).reshape(shape)


def _hash_arrow(values: Any) -> np.ndarray:
    if hasattr(values, "chunks"):
        parts = [np.zeros(0, np.int64), *(_hash_arrow(chunk) for chunk in values.chunks)]
        return np.concatenate(parts)
    if values.null_count:
        at = values.is_null().to_pylist().index(True)
        raise ValueError(f"values must have no missing ones, got {values.null_count}, the first at index {at}.")
    if hasattr(values, "dictionary"):
        indices: np.ndarray = values.indices.to_numpy(zero_copy_only=False)
        hashes: np.ndarray = _hash_arrow(values.dictionary)[indices]
        return hashes
    if str(values.type) not in ARROW_TEXT:
        raise TypeError(f"values must be strings or bytes, got an array of {values.type}.")
    return mix(fnv1a(arrow_texts(values))).view(np.int64)


def arrow_texts(values: Any) -> Texts:
    """The texts of an arrow array without missing values; its bytes are not copied."""
    values = values.cast("large_binary")
    _, offsets, text = values.buffers()
    first, count = values.offset, len(values)
    ends = np.frombuffer(offsets, np.int64)[first : first + count + 1] if offsets else np.zeros(1, np.int64)
    data = np.frombuffer(text, np.uint8) if text else np.zeros(0, np.uint8)
    return Texts(ends - ends[0], data[ends[0] : ends[-1]])


def mix(bits: np.ndarray) -> np.ndarray:
    """Every bit of a hash changed by every other, one to one (the last step of splitmix64)."""
    for shift, factor in MIX:
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    mixed: np.ndarray = bits ^ (bits >> np.uint64(31))
    return mixed


def fnv1a(texts: Texts, longest: int | None = None) -> np.ndarray:
    """The FNV-1a hash of each text, uint64; of its first `longest` bytes only, if given."""
    lengths = np.minimum(np.diff(texts.offsets), np.iinfo(np.int64).max if longest is None else longest)
    starts, pieces = texts.offsets[:-1], range(0, len(lengths), HASHED)
    parts = [_fnv1a(starts[i : i + HASHED], lengths[i : i + HASHED], texts.text) for i in pieces]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def _fnv1a(starts: np.ndarray, lengths: np.ndarray, text: np.ndarray) -> np.ndarray:
    """The longest texts come first, so that those with an `i`-th byte are always the first ones.

    All texts take a byte at a time together; the rest of a few long ones is hashed one by one, which is faster.
    """
    order = np.argsort(-lengths, kind="stable")
    starts, sorted_lengths = starts[order], -lengths[order]
    state = np.full(len(lengths), FNV_START)
    num_longer, index = int(np.searchsorted(sorted_lengths, 0)), 0
    while num_longer > FEW:
        state[:num_longer] ^= text[starts[:num_longer] + index]
        state[:num_longer] *= FNV_PRIME
        index += 1
        num_longer = int(np.searchsorted(sorted_lengths, -index))
    for row in range(num_longer):
        rest = text[starts[row] + index : starts[row] - sorted_lengths[row]].tobytes()
        state[row] = _hash_rest(int(state[row]), rest)
    hashes = np.empty_like(state)
    hashes[order] = state
    return hashes


def _hash_rest(state: int, text: bytes) -> int:
    prime = int(FNV_PRIME)
    for byte in text:
        state = (state ^ byte) * prime & 0xFFFFFFFFFFFFFFFF
    return state
