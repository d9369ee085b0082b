"""Is a prepared data set what its manifest says? Checksums, shapes, and the range of every value."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cce.data.record_format import (
    OFFSET,
    SPLITS,
    checksum,
    id_dtype,
    map_file,
    offsets_file,
    read_manifest,
    record_dtype,
    rows_file,
    values_file,
)
from cce.schema import Schema

CHUNK = 1 << 14  # rows or ids that are checked together: they stay in the cache of one core


@dataclass
class Verification:
    """What was checked, and its problems, one line each."""

    kind: str  # of folder: data, run
    path: str
    checked: dict[str, int] = field(default_factory=dict)  # how many files, bytes, rows, …
    problems: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def verify_data(folder: Path) -> Verification:
    """Read all of a data set. A manifest that cannot be read is an error; everything else is a problem."""
    manifest = read_manifest(folder)
    files = manifest["files"]
    checked = {
        "files": len(files),
        "bytes": sum(file["bytes"] for file in files.values()),
        "rows": sum(manifest["splits"].values()),
    }
    return Verification("data", str(folder), checked, list(find_problems(folder, manifest, files)))


def find_problems(folder: Path, manifest: Mapping[str, Any], names: Collection[str]) -> Iterator[str]:
    """A line for each of these files that is missing or damaged, then one for each column with wrong values."""
    schema, whole = Schema.from_dict(manifest["schema"]), set()
    for name in names:
        path, entry = folder / name, manifest["files"][name]
        if not path.is_file():
            yield f"{path} must be there, and it is missing."
        elif path.stat().st_size != entry["bytes"]:
            yield f"{path} must have {entry['bytes']} bytes, got {path.stat().st_size}."
        else:
            whole.add(name)  # so that its values can be read
            if (digest := checksum(path)) != entry["sha256"]:
                yield f"{path} must have the SHA-256 {entry['sha256']}, got {digest}: it was damaged or changed."
    for split in SPLITS:
        if rows_file(split) in whole:
            yield from _row_problems(folder / rows_file(split), schema)
        for index, feature in enumerate(schema.features):
            if feature.multi_hot and {values_file(split, index), offsets_file(split, index)} <= whole:
                yield from _bag_problems(folder, split, index, feature.num_embeddings)
    bits = manifest.get("options", {}).get("rule", {}).get("hash_bits")
    yield from _vocabulary_problems(folder, schema, whole, None if bits is None else 2**bits)


Check = tuple[str, str, Callable[[np.ndarray], np.ndarray]]  # a field, the rule of its values, where they are right


def _row_problems(path: Path, schema: Schema) -> Iterator[str]:
    checks: list[Check] = [
        ("label", "0 or 1", lambda x: (x == 0) | (x == 1)),
        ("weight", "a finite number of at least 0", lambda x: np.isfinite(x) & (x >= 0)),
        ("dense", "a finite number", np.isfinite),
    ]
    checks += [_id_check(f"id{index}", feature.num_embeddings) for index, feature in enumerate(schema.features)]
    names = {f"id{index}": (feature.name,) for index, feature in enumerate(schema.features)} | {"dense": schema.dense}
    records = map_file(path, record_dtype(schema))
    checks = [check for check in checks if check[0] in (records.dtype.names or ())]
    for start in range(0, len(records), CHUNK):  # of all columns, since these lie side by side
        chunk = records[start : start + CHUNK]
        for check in tuple(checks):
            column, rule, is_right = check
            values = chunk[column].reshape(len(chunk), -1)
            right = is_right(values)
            if not right.all():
                row, place = np.argwhere(~right)[0]
                name = names.get(column, (column,))[place]
                yield f"{path}, row {start + row}: {name} must be {rule}, got {values[row, place]}."
                checks.remove(check)


def _bag_problems(folder: Path, split: str, index: int, num_embeddings: int) -> Iterator[str]:
    path = folder / values_file(split, index)
    ids = map_file(path, id_dtype(num_embeddings))
    _, rule, is_right = _id_check("ids", num_embeddings)
    wrong = np.flatnonzero(~is_right(ids))
    if len(wrong):
        yield f"{path}, row {wrong[0]}: ids must be {rule}, got {ids[wrong[0]]}."
    path = folder / offsets_file(split, index)
    offsets = map_file(path, OFFSET)
    if offsets[0] != 0 or offsets[-1] != len(ids) or np.any(np.diff(offsets) < 0):
        yield f"{path} must rise from 0 to {len(ids)}, got {offsets[0]} to {offsets[-1]}."


def _id_check(name: str, num_embeddings: int) -> Check:
    return name, f"in [0, {num_embeddings})", lambda ids: (ids >= 0) & (ids < num_embeddings)


def _vocabulary_problems(folder: Path, schema: Schema, whole: set[str], hashed: int | None) -> Iterator[str]:
    """A vocabulary has a value for each id but 0, and none where ids are `hashed` ones.

    They are files of Parquet, which can be read if pyarrow is there.
    """
    if importlib.util.find_spec("pyarrow") is None:
        return
    from cce.data.arrow.tables import parquet_groups
    from cce.data.preparation.vocabulary import vocabulary_file

    for index, feature in enumerate(schema.features):
        path = folder / vocabulary_file(index)
        if vocabulary_file(index) not in whole:
            continue
        try:
            size = sum(parquet_groups(path))
        except ValueError as error:
            yield str(error)
        else:
            if size != feature.num_embeddings - 1 and not (size == 0 and feature.num_embeddings == hashed):
                yield f"{path} must have {feature.num_embeddings - 1} values for {feature.name!r}, got {size}."
