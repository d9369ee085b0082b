"""The vocabulary of a feature as predictions use it: the text of a value → its id, in a memory-mapped file.

The file has four arrays. `hashes`: the FNV-1a hash (64 bits) of every value's UTF-8 text, sorted; `ids`: the id of each
of them; `offsets` and `text`: the text of id `i` is `text[offsets[i - 1] : offsets[i]]`, by which a hash that was found
is checked, so that two values with one hash do no harm. An integer is looked up by its decimal digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cce.data.tensor_file import map_arrays, save_arrays

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

FORMAT, VERSION = "cce-vocabulary", "1"
KINDS = ("words", "integers", "hashed")  # how values were written in the raw data; or ids are hashes, and none is kept
FNV_START, FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
HASHED = 1 << 20  # texts at a time
FEW = 16  # texts, up to which a loop of Python is faster than numpy, a byte at a time


class Texts(NamedTuple):
    """Texts in UTF-8: that of index `i` is `text[offsets[i] : offsets[i + 1]]`."""

    offsets: np.ndarray  # int64
    text: np.ndarray  # uint8

    @classmethod
    def of(cls, values: Sequence[str]) -> Texts:
        """The texts of a list."""
        encoded = [value.encode() for value in values]
        offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return cls(offsets, np.frombuffer(b"".join(encoded), np.uint8))


@dataclass(frozen=True)
class Vocabulary:
    """The values of a feature; ids begin at 1, and 0 is "unseen or missing"."""

    feature: str
    kind: str
    hashes: np.ndarray
    ids: np.ndarray
    texts: Texts
    bits: int | None = None  # of hashed ids

    @classmethod
    def hashed(cls, feature: str, bits: int) -> Vocabulary:
        """Ids that are hashes of so many bits: every value has one."""
        nothing = np.zeros(0, np.int64)
        texts = Texts(np.zeros(1, np.int64), np.zeros(0, np.uint8))
        return cls(feature, "hashed", nothing.astype(np.uint64), nothing, texts, bits)

    @classmethod
    def build(cls, feature: str, kind: str, texts: Texts) -> Vocabulary:
        """Index the texts of the ids 1, 2, …."""
        hashes = hash_texts(texts)
        order = np.argsort(hashes, kind="stable")
        ids = (order + 1).astype(np.int32 if len(hashes) < 2**31 - 1 else np.int64)
        return cls(feature, kind, hashes[order], ids, texts)

    @classmethod
    def open(cls, path: Path, start: int = 0) -> Vocabulary:
        """Map the vocabulary in a file, or from `start` on within a larger one."""
        arrays, metadata = map_arrays(path, start)
        if metadata.get("format") != FORMAT or metadata.get("version") != VERSION:
            got = f"{metadata.get('format')!r}, version {metadata.get('version')!r}"
            raise ValueError(f"{path} must be a {FORMAT} of version {VERSION}, got {got}.")
        try:
            texts = Texts(arrays["offsets"], arrays["text"])
            bits = int(metadata["bits"]) if metadata["kind"] == "hashed" else None
            found = cls(metadata["feature"], metadata["kind"], arrays["hashes"], arrays["ids"], texts, bits)
        except KeyError as error:
            raise ValueError(f"{path} must be a whole vocabulary, and {error} is missing.") from error
        if not len(found.hashes) == len(found.ids) == len(texts.offsets) - 1:
            raise ValueError(f"{path} must have a hash, an id and a text for each value, and it is damaged.")
        return found

    def save(self, path: Path) -> None:
        """Write the file that `open` maps."""
        metadata = {"format": FORMAT, "version": VERSION, "feature": self.feature, "kind": self.kind}
        metadata |= {} if self.bits is None else {"bits": str(self.bits)}
        arrays = {"hashes": self.hashes, "ids": self.ids, "offsets": self.texts.offsets, "text": self.texts.text}
        save_arrays(path, arrays, metadata)

    def __len__(self) -> int:
        """Values, which is one less than there are ids."""
        return len(self.ids) if self.bits is None else 2**self.bits - 1

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest text."""
        return int(np.diff(self.texts.offsets).max(initial=0))

    def find(self, values: Sequence[str] | Texts) -> np.ndarray:
        """The ids of texts, int64; 0 where one is unseen."""
        texts = values if isinstance(values, Texts) else Texts.of(values)
        if self.bits is not None:
            return hashed_ids((bytes(texts.text[a:b]) for a, b in pairwise(texts.offsets.tolist())), self.bits)
        wanted = hash_texts(texts, self.longest)
        places = np.searchsorted(self.hashes, wanted)
        found = np.zeros(len(wanted), np.int64)
        left = np.arange(len(wanted))
        while len(left):  # more than once only if values of the vocabulary have the same hash
            left = left[places[left] < len(self)]
            left = left[self.hashes[places[left]] == wanted[left]]
            ids = self.ids[places[left]].astype(np.int64)
            same = _equal(self.texts, ids - 1, texts, left)
            found[left[same]] = ids[same]
            left = left[~same]
            places[left] += 1
        return found

    def values(self, ids: Sequence[int] | np.ndarray) -> list[str | None]:
        """The texts of ids; None for 0."""
        if self.bits is not None:
            raise ValueError(f"ids of {self.feature!r} are hashes: what they stand for is not kept.")
        offsets, text = self.texts
        checked = np.asarray(ids, np.int64)
        if len(checked) and not (checked.min() >= 0 and checked.max() <= len(self)):
            raise ValueError(f"ids of {self.feature!r} must lie in [0, {len(self) + 1}).")
        return [bytes(text[offsets[i - 1] : offsets[i]]).decode() if i else None for i in checked.tolist()]


def hashed_ids(texts: Iterable[bytes], bits: int) -> np.ndarray:
    """Ids in [1, 2**bits): a hash of each text (BLAKE2b), which is the same on every machine."""
    words = (blake2b(text, digest_size=8).digest() for text in texts)
    hashes = np.array([int.from_bytes(word, "little") for word in words], np.uint64)
    return 1 + (hashes % np.uint64(2**bits - 1)).astype(np.int64)


def hash_texts(texts: Texts, longest: int | None = None) -> np.ndarray:
    """The FNV-1a hash of each text, 64 bits (Fowler, Noll, Vo); of its first `longest` bytes only, if given."""
    lengths = np.minimum(np.diff(texts.offsets), np.iinfo(np.int64).max if longest is None else longest)
    starts, pieces = texts.offsets[:-1], range(0, len(lengths), HASHED)
    parts = [_hash(starts[i : i + HASHED], lengths[i : i + HASHED], texts.text) for i in pieces]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def _hash(starts: np.ndarray, lengths: np.ndarray, text: np.ndarray) -> np.ndarray:
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
        state[row] = _hash_bytes(int(state[row]), rest)
    hashes = np.empty_like(state)
    hashes[order] = state
    return hashes


def _hash_bytes(state: int, text: bytes) -> int:
    prime = int(FNV_PRIME)
    for byte in text:
        state = (state ^ byte) * prime & 0xFFFFFFFFFFFFFFFF
    return state


def _equal(first: Texts, at: np.ndarray, second: Texts, there: np.ndarray) -> np.ndarray:
    """Whether the texts at the given indices are the same, pair by pair."""
    starts, others = first.offsets[at], second.offsets[there]
    lengths = first.offsets[at + 1] - starts
    same = np.asarray(lengths == second.offsets[there + 1] - others)
    sizes = np.where(same, lengths, 0)
    pairs = np.repeat(np.arange(len(sizes)), sizes)
    within = np.arange(len(pairs)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    wrong = first.text[starts[pairs] + within] != second.text[others[pairs] + within]
    same[pairs[wrong]] = False
    return same
