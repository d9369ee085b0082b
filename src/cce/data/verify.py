"""Is a prepared data set what its manifest says? Checksums, shapes, and the range of every value."""

from __future__ import annotations

import importlib.util
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cce.data.manifest import checksum, has_labels, read_manifest
from cce.data.record_format import OFFSET, id_dtype, map_file, offsets_file, record_dtype, rows_file, values_file
from cce.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNK = 1 << 18  # rows or ids that are checked together


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
    schema, splits, files = Schema.from_dict(manifest["schema"]), manifest["splits"], manifest["files"]
    found = Verification("data", str(folder))
    found.checked = {
        "files": len(files),
        "bytes": sum(f["bytes"] for f in files.values()),
        "rows": sum(splits.values()),
    }
    whole = {name for name, entry in files.items() if _check_file(folder / name, entry, found.problems)}
    for split in splits:
        if rows_file(split) in whole:
            found.problems += _row_problems(folder / rows_file(split), schema, has_labels=has_labels(manifest))
        for index, feature in enumerate(schema.features):
            if feature.multi_hot and {values_file(split, index), offsets_file(split, index)} <= whole:
                found.problems += _bag_problems(folder, split, index, feature.num_embeddings)
    bits = manifest.get("options", {}).get("rule", {}).get("hash_bits")
    found.problems += _vocabulary_problems(folder, schema, whole, None if bits is None else 2**bits)
    return found


def _check_file(path: Path, entry: dict[str, Any], problems: list[str]) -> bool:
    """Whether a file has its size, so that its values can be read."""
    if not path.is_file():
        problems.append(f"{path} must be there, and it is missing.")
        return False
    size = path.stat().st_size
    if size != entry["bytes"]:
        problems.append(f"{path} must have {entry['bytes']} bytes, got {size}.")
        return False
    digest = checksum(path)
    if digest != entry["sha256"]:
        problems.append(f"{path} must have the SHA-256 {entry['sha256']}, got {digest}.")
    return True


def _row_problems(path: Path, schema: Schema, *, has_labels: bool) -> Iterator[str]:
    """One line for each column with values that are out of range."""
    records = map_file(path, record_dtype(schema))
    if has_labels:
        yield from _first_wrong(path, "label", "0 or 1", records["label"], lambda x: (x == 0) | (x == 1))
    else:
        yield from _first_wrong(path, "label", "NaN where rows have none", records["label"], np.isnan)
    if schema.has_weights:
        rule = "a finite number of at least 0"
        yield from _first_wrong(path, "weight", rule, records["weight"], lambda x: np.isfinite(x) & (x >= 0))
    for column, name in enumerate(schema.dense):
        yield from _first_wrong(path, name, "a finite number", records["dense"][:, column], np.isfinite)
    for index, feature in enumerate(schema.features):
        if not feature.multi_hot:
            yield from _wrong_ids(path, feature.name, records[f"id{index}"], feature.num_embeddings)


def _bag_problems(folder: Path, split: str, index: int, num_embeddings: int) -> Iterator[str]:
    path = folder / values_file(split, index)
    ids = map_file(path, id_dtype(num_embeddings))
    yield from _wrong_ids(path, "ids", ids, num_embeddings)
    path = folder / offsets_file(split, index)
    offsets = map_file(path, OFFSET)
    if offsets[0] != 0 or offsets[-1] != len(ids) or np.any(np.diff(offsets) < 0):
        yield f"{path} must rise from 0 to {len(ids)}, got {offsets[0]} to {offsets[-1]}."


def _wrong_ids(path: Path, name: str, ids: np.ndarray, num_embeddings: int) -> Iterator[str]:
    rule = f"in [0, {num_embeddings})"
    yield from _first_wrong(path, name, rule, ids, lambda x: (x >= 0) & (x < num_embeddings))


def _first_wrong(path: Path, name: str, rule: str, column: np.ndarray, is_right: Any) -> Iterator[str]:
    for start in range(0, len(column), CHUNK):
        chunk = column[start : start + CHUNK]
        wrong = np.flatnonzero(~is_right(chunk))
        if len(wrong):
            yield f"{path}, row {start + wrong[0]}: {name} must be {rule}, got {chunk[wrong[0]]}."
            return


def _vocabulary_problems(folder: Path, schema: Schema, whole: set[str], hashed: int | None) -> Iterator[str]:
    """A vocabulary has a value for each id but 0, and none where ids are `hashed` ones.

    They are files of Parquet, which can be read if pyarrow is there.
    """
    if importlib.util.find_spec("pyarrow") is None:
        return
    from cce.data.prepare.vocabulary import vocabulary_file, vocabulary_size

    for index, feature in enumerate(schema.features):
        path = folder / vocabulary_file(index)
        if vocabulary_file(index) not in whole:
            continue
        try:
            size = vocabulary_size(path)
        except ValueError as error:
            yield str(error)
        else:
            if size != feature.num_embeddings - 1 and not (size == 0 and feature.num_embeddings == hashed):
                yield f"{path} must have {feature.num_embeddings - 1} values for {feature.name!r}, got {size}."
