"""The vocabulary of a feature as predictions use it: the text of a value → its id, in a memory-mapped file.

The file (safetensors; it may lie within an archive) has four arrays. `hashes`: the FNV-1a hash (64 bits) of every
value's UTF-8 text, sorted; `ids`: the id of each of them; `offsets` and `text`: the text of id `i` is
`text[offsets[i - 1] : offsets[i]]`, by which a hash that was found is checked, so that two values with one hash do no
harm. An integer is looked up by its decimal digits. The empty text is the missing value, if training rows have one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from cce.data.preparation.job import OPEN_BITS
from cce.files import usual_permissions
from cce.hashing import Texts, fnv1a, mix

FORMAT, VERSION = "cce-vocabulary", "1"
KINDS = ("words", "integers", "hashed")  # how values were written in the raw data; or ids are hashes, and none is kept


@dataclass(frozen=True)
class Vocabulary:
    """The values of a feature; ids begin at 1, and 0 is "unseen". The empty text is a missing value."""

    feature: str
    kind: str
    hashes: np.ndarray
    ids: np.ndarray
    texts: Texts
    bits: int | None = None  # of hashed ids

    @classmethod
    def hashed(cls, feature: str, bits: int) -> Vocabulary:
        """Ids that are hashes of this many bits: every value has one."""
        nothing = np.zeros(0, np.int64)
        texts = Texts(np.zeros(1, np.int64), np.zeros(0, np.uint8))
        return cls(feature, "hashed", nothing.astype(np.uint64), nothing, texts, bits)

    @classmethod
    def build(cls, feature: str, kind: str, texts: Texts) -> Vocabulary:
        """Index the texts of the ids 1, 2, …."""
        hashes = fnv1a(texts)
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
        metadata = {"format": FORMAT, "version": VERSION, "feature": self.feature, "kind": self.kind}
        metadata |= {} if self.bits is None else {"bits": str(self.bits)}
        arrays = {"hashes": self.hashes, "ids": self.ids, "offsets": self.texts.offsets, "text": self.texts.text}
        try:
            with usual_permissions(path):
                save_file(arrays, path, metadata)
        except (OSError, SafetensorError) as error:
            raise OSError(f"{path} could not be written: {error}.") from error

    def __len__(self) -> int:
        """Values, which is one less than there are ids; none without a bound."""
        return len(self.ids) if self.bits in (None, OPEN_BITS) else 2**self.bits - 1

    @property
    def num_embeddings(self) -> int | None:
        """Ids, "unseen" included; None without a bound."""
        return None if self.bits == OPEN_BITS else len(self) + 1

    @cached_property
    def longest(self) -> int:
        return int(np.diff(self.texts.offsets).max(initial=0))

    def find(self, values: Sequence[str] | Texts) -> np.ndarray:
        """The ids of texts, int64; 0 where one is unseen."""
        texts = values if isinstance(values, Texts) else Texts.of(values)
        if self.bits is not None:
            return hashed_ids(texts, self.bits)
        wanted = fnv1a(texts, self.longest)
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
        """The texts of ids; None for 0, which is unseen, and the empty text for a missing value."""
        if self.bits is not None:
            raise ValueError(f"ids of {self.feature!r} are hashes: what they stand for is not kept.")
        offsets, text = self.texts
        checked = np.asarray(ids, np.int64)
        if len(checked) and not (checked.min() >= 0 and checked.max() <= len(self)):
            raise ValueError(f"ids of {self.feature!r} must lie in [0, {len(self) + 1}).")
        return [bytes(text[offsets[i - 1] : offsets[i]]).decode() if i else None for i in checked.tolist()]


def hashed_ids(texts: Texts, bits: int) -> np.ndarray:
    """Ids in [1, 2**bits): the 64-bit hash of each text (`cce.hash_ids`), modulo their number; or all of it."""
    if bits == OPEN_BITS:
        return mix(fnv1a(texts)).view(np.int64)
    return 1 + (mix(fnv1a(texts)) % np.uint64(2**bits - 1)).astype(np.int64)


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


METADATA = "__metadata__"
DTYPES = {"U8": "<u1", "I32": "<i4", "I64": "<i8", "U64": "<u8", "F32": "<f4"}


def map_arrays(path: Path, start: int = 0) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays of a file, read when they are accessed, and its metadata; `start` is where it lies within `path`."""
    try:
        mapped = np.memmap(path, np.uint8, "r", start).view(np.ndarray)
        length = int.from_bytes(mapped[:8].tobytes(), "little")
        header, body = json.loads(mapped[8 : 8 + length].tobytes()), mapped[8 + length :]
        metadata = header.pop(METADATA, {})
        return {name: _array(body, **entry) for name, entry in header.items()}, metadata
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} must be a whole safetensors file, and it is damaged: {error}.") from error


def _array(body: np.ndarray, dtype: str, shape: list[int], data_offsets: tuple[int, int]) -> np.ndarray:
    first, last = data_offsets
    return body[first:last].view(DTYPES[dtype]).reshape(shape)
