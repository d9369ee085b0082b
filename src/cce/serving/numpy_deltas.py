"""Bring an open bundle up to date with NumPy alone. This file needs nothing but `numpy_reader.py` beside it.

    bundle = numpy_reader.open_bundle("out/model.safetensors")
    apply_delta(bundle, "out/delta-000001.safetensors")

A delta names the rows of ids that go and that change by their numbers, and ids that come by themselves; with it are
what is stored of each id that changes or comes, and all other tensors that change. `docs/format.md` has every byte.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from cce.serving.numpy_reader import Array, Bundle, State, Table, Tensors, Version, below, map_file, scramble

FORMAT, VERSION = "cce-delta", "1"
ONE_AT_A_TIME = Lock()


class Delta(NamedTuple):
    """What leads from one state to the next."""

    tensors: Tensors
    specs: dict[str, dict[str, Any]]  # of tables that change, by name
    version: Version  # that it makes


def apply_delta(bundle: Bundle, path: Path | str) -> None:
    """Let a bundle be what the model was when a delta was written: at once, for all lookups that begin after it.

    A delta that does not follow, or is damaged, is rejected, and nothing is changed.
    """
    with ONE_AT_A_TIME:
        tables, weights, version = bundle.state
        delta = read_delta(path, version)
        changed = {name: changed_table(tables[name], delta, name) for name in delta.specs}
        bundle.state = State(tables | changed, weights | changed_weights(delta), delta.version)


def read_delta(path: Path | str, now: Version) -> Delta:
    """The delta that follows this version; any other is rejected, and so is a damaged one."""
    tensors, metadata = map_file(path)
    if (metadata.get("format"), metadata.get("version")) != (FORMAT, VERSION):
        raise ValueError(f"{path} must be a {FORMAT} of version {VERSION}, got {metadata.get('format')!r}.")
    if metadata.get("sha256") != checksum(tensors, metadata):
        raise ValueError(f"{path} must be a whole delta, and it is damaged: its checksum is another.")
    model, number = metadata["model"], int(metadata["number"])
    if model != now.model:
        raise ValueError(f"{path} must be a delta of model {now.model[:12] or '?'}, got one of model {model[:12]}.")
    if number != now.number + 1:
        why = "that one was applied before" if number <= now.number else "those between are missing"
        raise ValueError(f"{path} must be delta {now.number + 1}, got delta {number}: {why}.")
    if metadata["last"] != now.last:
        raise ValueError(f"{path} must follow the delta {now.number} that was applied, and it follows another one.")
    return Delta(tensors, json.loads(metadata["tables"]), Version(model, number, metadata["sha256"]))


def checksum(tensors: Tensors, metadata: dict[str, str]) -> str:
    """The SHA-256 of tensors with their names, types and shapes, and of all metadata but `sha256`."""
    others = {name: value for name, value in metadata.items() if name != "sha256"}
    digest = sha256(json.dumps(others, sort_keys=True).encode())
    for name, each in sorted(tensors.items()):
        digest.update(json.dumps([name, each.dtype.str, list(each.shape)]).encode())
        digest.update(np.ascontiguousarray(each).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def changed_weights(delta: Delta) -> Tensors:
    """The other weights that change: copies, since a file may be overwritten."""
    return {name: np.array(each) for name, each in below(delta.tensors, "model").items()}


def changed_table(table: Table, delta: Delta, name: str) -> Table:
    """A table after a delta: whole tensors are replaced; rows of ids go, change and come."""
    spec, given, tensors = delta.specs[name], below(delta.tensors, name), table.tensors
    whole = {key: np.array(each) for key, each in given.items() if not key.startswith("delta.")}
    if "delta.rows" not in given:
        return Table(spec, whole if shape_of(table.spec) != shape_of(spec) else tensors | whole, name)
    key, keys, rows = rows_of(table)
    gone, changed = (from_gaps(given[f"delta.{each}"]) for each in ("gone", "changed"))
    new = given["delta.ids"]
    if "map.keys" in tensors:
        new = scramble(new.view(np.uint64)).view(np.int64)
    source, bits = np.arange(len(keys)), row_bits(spec, tensors[key])
    source[changed] = len(keys) + np.arange(len(changed))  # rows of the delta follow those that there are
    source, keys = np.delete(source, gone), np.delete(keys, gone)
    at = np.searchsorted(keys, new)
    source = np.insert(source, at, len(rows) + len(changed) + np.arange(len(new)))
    keys = np.insert(keys, at, new)
    rows = np.concatenate([rows, as_rows(given["delta.rows"], len(changed) + len(new), bits)])[source]
    stream = as_stream(rows if len(rows) else np.zeros((1, rows.shape[1]), np.uint8), bits)
    if key == "rows.values":
        stream = stream[:-3].view(tensors[key].dtype).reshape(-1, table.embedding_dim)
    return Table(spec, tensors | _map_of(tensors, keys) | whole | {key: stream}, name)


def shape_of(spec: dict[str, Any]) -> dict[str, Any]:
    """All that is said of a table except how many ids have rows."""
    return spec | {"groups": [{**group, "num_ids": None} for group in spec["groups"]]}


# -- what is stored of each id -----------------------------------------------------------------------------------------


def rows_of(table: Table) -> tuple[str, Array, Array]:
    """The name of the tensor that has something for each id; the keys, or ids, that it is for; and it, as `as_rows`."""
    tensors, (group,) = table.tensors, table.spec["groups"]
    name = "groups.0.words" if group["kind"] == "learned" else "rows.values"
    if "map.keys" in tensors:
        keys = tensors["map.keys"]
    elif "map.bits" in tensors:
        keys = np.flatnonzero(np.unpackbits(tensors["map.bits"].view(np.uint8), bitorder="little"))
    else:
        keys = np.arange(table.num_embeddings)
    stream = tensors[name].reshape(-1).view(np.uint8)
    return name, keys, as_rows(stream, len(keys), row_bits(table.spec, tensors[name]))


def row_bits(spec: dict[str, Any], tensor: Array) -> int:
    """Bits that are stored of an id."""
    (group,) = spec["groups"]
    return len(group["slots"]) * group["bits"] if group["kind"] == "learned" else 8 * tensor[:1].nbytes


def as_rows(stream: Array, num_rows: int, bits: int) -> Array:
    """Rows that follow each other without gaps as a matrix: of bytes, or of bits where rows do not fill bytes."""
    if bits % 8:
        return np.unpackbits(stream, count=num_rows * bits, bitorder="little").reshape(num_rows, bits)
    return stream[: num_rows * bits // 8].reshape(num_rows, bits // 8)


def as_stream(rows: Array, bits: int) -> Array:
    """What `as_rows` reads, with three bytes behind it."""
    stream = np.packbits(rows.reshape(-1), bitorder="little") if bits % 8 else rows.reshape(-1)
    return np.concatenate([stream, np.zeros(3, np.uint8)])


def from_gaps(gaps: Array) -> Array:
    """Rising numbers from the steps between them, the first from -1; the largest value of the type goes on with one."""
    return np.asarray((np.cumsum(gaps, dtype=np.int64) - 1)[gaps != np.iinfo(gaps.dtype).max])


def to_gaps(numbers: Array) -> Array:
    """What `from_gaps` reads, in the type that takes the fewest bytes."""
    gaps, found = np.diff(numbers, prepend=-1), []
    for dtype in (np.uint8, np.uint16):
        base = np.iinfo(dtype).max
        lengths = gaps // base + 1
        found.append(np.full(lengths.sum(), base, dtype))
        found[-1][np.cumsum(lengths) - 1] = gaps % base
    return min(found, key=lambda each: int(each.nbytes))


def _map_of(tensors: Tensors, keys: Array) -> Tensors:
    """The map of these keys, or ids."""
    if "map.bits" not in tensors:
        return {"map.keys": keys} if "map.keys" in tensors else {}
    bits = np.zeros((len(tensors["map.bits"]), 64), np.uint8)
    bits.reshape(-1)[keys] = 1
    counts = bits.sum(1, dtype=np.int32)
    ranks = np.cumsum(counts, dtype=np.int32) - counts
    return {"map.bits": np.packbits(bits.reshape(-1), bitorder="little").view("<i8"), "map.ranks": ranks}
