"""Read the tables of an exported model with NumPy alone. This file needs nothing of cce: copy it to where you serve.

    bundle = open_bundle("out/model.safetensors")
    bundle["user"].vectors(ids)             # (*s) integers to (*s, embedding_dim) float32
    vocabulary = open_vocabulary("out/vocabulary/000.safetensors")
    vocabulary.find(["alice", "bob"])       # texts to ids; 0 where a text is unseen

Files are memory-mapped: opening one reads its header, and a lookup reads the pages that it needs. `docs/format.md`
describes every byte. In float32, vectors of tables that sum rows are equal to the bit to those of the trained model.
"""

from __future__ import annotations

import json
from functools import reduce
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
Tensors = dict[str, Array]

MAX_HEADER = 100_000_000  # bytes; the limit of the safetensors format
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2"}
DTYPES |= {"I8": "<i1", "U8": "<u1", "U16": "<u2", "U64": "<u8", "BOOL": "?"}  # BF16 is the upper half of a float32
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
LOW = np.uint64(0xFFFF_FFFF)
FNV_START, FNV_PRIME, WORD = 0xCBF29CE484222325, 0x100000001B3, 2**64 - 1


# -- files -------------------------------------------------------------------------------------------------------------


class Mapped(NamedTuple):
    """The tensors of a safetensors file, mapped, and its metadata."""

    tensors: Tensors
    metadata: dict[str, str]


def map_file(path: Path | str) -> Mapped:
    """Map a safetensors file."""
    try:
        with Path(path).open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= MAX_HEADER:
                raise ValueError(f"a header of {length} bytes")
            header = json.loads(file.read(length))
            data = np.memmap(file, np.uint8, "r")[8 + length :]  # of the same file, which another may replace
        metadata = header.pop("__metadata__", {})
        tensors = {name: _view(data, entry) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} must be a whole safetensors file, and it is damaged: {error}.") from error
    return Mapped(tensors, metadata)


def below(tensors: Tensors, name: str) -> Tensors:
    """The tensors `name/…`, by the rest of their names."""
    return {key[len(name) + 1 :]: each for key, each in tensors.items() if key.startswith(f"{name}/")}


def _view(data: Array, entry: dict[str, Any]) -> Array:
    first, last = entry["data_offsets"]
    dtype, shape = np.dtype(DTYPES[entry["dtype"]]), tuple(entry["shape"])
    if last - first != prod(shape) * dtype.itemsize or last > len(data):
        raise ValueError(f"{last - first} bytes up to {last} of {len(data)} for shape {shape}")
    return np.frombuffer(data[first:last], dtype).reshape(shape) if last > first else np.empty(shape, dtype)


# -- tables ------------------------------------------------------------------------------------------------------------


class Table:
    """One table: ids to vectors."""

    def __init__(self, spec: dict[str, Any], tensors: Tensors, name: str) -> None:
        self.spec, self.num_embeddings, self.embedding_dim = spec, spec["num_embeddings"], spec["embedding_dim"]
        self.tensors = tensors
        if spec["kind"] != "rows":
            raise ValueError(f"kind of table {name!r} must be 'rows', got {spec['kind']!r}.")

    def vectors(self, ids: Any) -> Array:
        """Vectors `(*s, embedding_dim)`, float32, of ids `(*s)`; one that the table does not have reads as id 0."""
        given = np.asarray(ids)
        if given.dtype.kind not in "iu":
            raise TypeError(f"ids must be integers, got {given.dtype}.")
        flat = given.reshape(-1)
        if self.num_embeddings is None:  # any ids
            flat = flat.astype(np.int64)
        else:
            flat = np.where((flat >= 0) & (flat < self.num_embeddings), flat, 0).astype(np.int64)
        vectors = self._rows(flat)
        if self.spec["padding_idx"] is not None:
            vectors[flat == self.spec["padding_idx"]] = 0
        return vectors.reshape(*given.shape, self.embedding_dim)

    def _rows(self, ids: Array) -> Array:
        """Rows of one codebook, summed over terms, side by side; zeros where a map has none."""
        spec, mapped = self.spec, _map(self, ids)
        if mapped is not None:
            ids = np.maximum(mapped - 1, 0)
        found: dict[int, Array] = {}
        for place, group in enumerate(spec["groups"]):
            numbers = GROUPS[group["kind"]](group, self, f"groups.{place}.", ids) + np.array(group["first_rows"])
            found |= dict(zip(group["slots"], numbers.T, strict=True))
        rows = np.stack([found[slot] for slot in sorted(found)], axis=1)
        pieces = self.tensors["rows.values"][rows].astype(np.float32)
        if "rows.scale" in self.tensors:
            pieces = pieces * self.tensors["rows.scale"]
        pieces = pieces.reshape(len(ids), spec["columns"], spec["terms"], -1)
        vectors = reduce(np.add, np.moveaxis(pieces, 2, 0)).reshape(len(ids), self.embedding_dim)
        return vectors if mapped is None else np.where(mapped[:, None] > 0, vectors, np.float32(0))


# -- rows of ids -------------------------------------------------------------------------------------------------------


def scramble(values: Array) -> Array:
    """The finaliser of splitmix64, of uint64."""
    values = (values ^ (values >> np.uint64(30))) * MIX_1
    values = (values ^ (values >> np.uint64(27))) * MIX_2
    return np.asarray(values ^ (values >> np.uint64(31)))


def hash32(ids: Array, seeds: Array) -> Array:
    """Hashes of 32 bits, as uint64 `(*s, functions)`, of ids `(*s)`; seeds are int64 `(functions, 3)`."""
    mixed = scramble(ids.astype(np.uint64))[..., None]
    a, b, c = np.ascontiguousarray(seeds).view(np.uint64).T
    product = ((mixed & LOW) + a) * ((mixed >> np.uint64(32)) + b) + c
    return np.asarray(product >> np.uint64(32))


def into(hashes: Array, num_rows: int) -> Array:
    """Hashes brought into `[0, num_rows)`, as int64."""
    return ((hashes * np.uint64(num_rows)) >> np.uint64(32)).astype(np.int64)


def _map(table: Table, ids: Array) -> Array | None:
    """The row of each id in the map, if there is one: how many ids up to it have a bit; 0 where it has none.

    Of any ids the map has scrambled keys, which rise: the row is the index of the key, from 1 on.
    """
    if "map.keys" in table.tensors:
        keys, own = table.tensors["map.keys"], scramble(ids.astype(np.uint64)).view(np.int64)
        at = np.searchsorted(keys, own)
        if not len(keys):
            return at
        return np.where(keys[np.minimum(at, len(keys) - 1)] == own, at + 1, 0)
    if "map.bits" not in table.tensors:
        return None
    words = table.tensors["map.bits"][ids >> 6].view(np.uint64)
    place = (ids & 63).astype(np.uint64)
    below = words & ((np.uint64(1) << place) - np.uint64(1))
    counts = np.unpackbits(below.view(np.uint8).reshape(-1, 8), axis=1).sum(axis=1, dtype=np.int64)
    return np.where((words >> place) & np.uint64(1) == 1, table.tensors["map.ranks"][ids >> 6] + counts + 1, 0)


def _own(_: dict[str, Any], __: Table, ___: str, ids: Array) -> Array:
    return ids[:, None]


def _hashed(group: dict[str, Any], table: Table, prefix: str, ids: Array) -> Array:
    return into(hash32(ids, table.tensors[f"{prefix}seeds"]), group["num_rows"])


def _learned(group: dict[str, Any], table: Table, prefix: str, ids: Array) -> Array:
    """Packed pointers `(n, num_columns)` of ids: number `p` lies from bit `p · bits` on, lowest bits first."""
    words, num_columns, bits = table.tensors[f"{prefix}words"], len(group["slots"]), group["bits"]
    at = (ids[:, None] * num_columns + np.arange(num_columns)) * bits
    four = sum(words[(at >> 3) + byte].astype(np.int64) << 8 * byte for byte in range(4))  # 3 bytes follow the last
    return np.asarray((four >> (at & 7)) & ((1 << bits) - 1))


def _digits(group: dict[str, Any], _: Table, __: str, ids: Array) -> Array:
    digits = []
    for radix in group["radices"]:
        digits.append(ids % radix)
        ids = ids // radix
    return np.stack(digits, axis=1)


def _circular(group: dict[str, Any], table: Table, prefix: str, ids: Array) -> Array:
    positions = ids[:, None] * group["dim"] + np.arange(group["dim"])
    hashes = hash32(positions // group["block_size"], table.tensors[f"{prefix}seeds"])[..., 0]
    return np.asarray((into(hashes, group["size"]) + positions % group["block_size"]) % group["size"])


GROUPS = {"own": _own, "hashed": _hashed, "learned": _learned, "digits": _digits, "circular": _circular}


# -- bundles -----------------------------------------------------------------------------------------------------------


class Version(NamedTuple):
    """Which state of a model: that of an export, by its checksum, or after so many deltas; the last one's checksum."""

    model: str
    number: int = 0
    last: str = ""

    def to_dict(self) -> dict[str, str]:
        """As metadata have it."""
        return {"model": self.model, "number": str(self.number), "last": self.last}


class State(NamedTuple):
    """A bundle at one time."""

    tables: dict[str, Table]
    weights: Tensors
    version: Version


class Bundle:
    """The tables of an exported model, and its other weights.

    A delta replaces `state` as a whole (`numpy_deltas.py`). Tables of `bundle.tables` are those of one time; a table
    `bundle[name]` is at each lookup as it then is.
    """

    def __init__(self, path: Path | str) -> None:
        tensors, metadata = map_file(path)
        if (metadata.get("format"), metadata.get("version")) != ("cce-bundle", "1"):
            raise ValueError(f"{path} must be a cce-bundle of version 1, got {metadata.get('format')!r}.")
        self.spec = json.loads(metadata["spec"])
        tables = {name: Table(spec, below(tensors, name), name) for name, spec in self.spec["tables"].items()}
        version = Version(metadata.get("model", ""), int(metadata.get("number", 0)), metadata.get("last", ""))
        self.state = State(tables, below(tensors, "model"), version)

    @property
    def tables(self) -> dict[str, Table]:
        """Each table by the path of its module, as it is now."""
        return self.state.tables

    @property
    def weights(self) -> Tensors:
        """The other weights by name, as they are now."""
        return self.state.weights

    def __getitem__(self, name: str) -> LiveTable:
        """A table by the path of its module, or by the name of its feature where one collection has it."""
        found = [c["tables"][name] for c in self.spec["collections"].values() if name in c["tables"]]
        if name not in self.tables and len(found) != 1:
            raise KeyError(f"{name!r} must name one table; the tables are {', '.join(self.tables)}.")
        return LiveTable(self, name if name in self.tables else found[0])


class LiveTable:
    """A table of a bundle, which deltas may change."""

    def __init__(self, bundle: Bundle, name: str) -> None:
        self.bundle, self.name, self.embedding_dim = bundle, name, bundle.tables[name].embedding_dim

    def vectors(self, ids: Any) -> Array:
        """As `Table.vectors`, of the table as it is now."""
        return self.bundle.tables[self.name].vectors(ids)


def open_bundle(path: Path | str) -> Bundle:
    """Open an exported model."""
    return Bundle(path)


# -- vocabularies ------------------------------------------------------------------------------------------------------


class Vocabulary:
    """Texts to ids, from sorted hashes; a text is compared with the one of the id that its hash led to."""

    def __init__(self, path: Path | str) -> None:
        tensors, metadata = map_file(path)
        if (metadata.get("format"), metadata.get("version")) != ("cce-vocabulary", "1"):
            raise ValueError(f"{path} must be a cce-vocabulary of version 1, got {metadata.get('format')!r}.")
        self.hashes, self.ids, self.offsets, self.text = (
            tensors[name] for name in ("hashes", "ids", "offsets", "text")
        )

    def find(self, texts: list[str]) -> Array:
        """The ids of texts, int64; 0 where one is unseen."""
        return np.array([self._find(text.encode()) for text in texts], np.int64)

    def _find(self, text: bytes) -> int:
        wanted = np.uint64(fnv1a(text))
        place = int(np.searchsorted(self.hashes, wanted))
        while place < len(self.hashes) and self.hashes[place] == wanted:
            found = int(self.ids[place])
            if self.text[self.offsets[found - 1] : self.offsets[found]].tobytes() == text:
                return found
            place += 1
        return 0


def open_vocabulary(path: Path | str) -> Vocabulary:
    """Open the vocabulary of a feature."""
    return Vocabulary(path)


def fnv1a(text: bytes) -> int:
    """The FNV-1a hash of bytes, 64 bits."""
    state = FNV_START
    for byte in text:
        state = ((state ^ byte) * FNV_PRIME) & WORD
    return state
