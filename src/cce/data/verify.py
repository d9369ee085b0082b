"""Is a prepared data set what its manifest says? Checksums, shapes, and the range of every value."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cce.data.record_format import (
    OFFSET,
    checksum,
    has_labels,
    id_dtype,
    map_file,
    offsets_file,
    read_manifest,
    record_dtype,
    rows_file,
    split_files,
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
    schema, splits, files = Schema.from_dict(manifest["schema"]), manifest["splits"], manifest["files"]
    found = Verification("data", str(folder))
    found.checked = {
        "files": len(files),
        "bytes": sum(f["bytes"] for f in files.values()),
        "rows": sum(splits.values()),
    }
    whole = {name for name, entry in files.items() if _check_file(folder / name, entry, found.problems)}
    for split in splits:
        found.problems += _split_problems(folder, manifest, split, whole)
    bits = manifest.get("options", {}).get("rule", {}).get("hash_bits")
    found.problems += _vocabulary_problems(folder, schema, whole, None if bits is None else 2**bits)
    return found


def verify_split(folder: Path, manifest: Mapping[str, Any], split: str) -> None:
    """Raise the first problem of a split: a wrong checksum, shape or value."""
    names = split_files(Schema.from_dict(manifest["schema"]), split)
    verify_checksums(folder, manifest, names)
    for problem in _split_problems(folder, manifest, split, set(names)):
        raise ValueError(problem)


def verify_checksums(folder: Path, manifest: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raise the first problem of these files: one that is missing, or has another size or checksum."""
    problems: list[str] = []
    for name in names:
        _check_file(folder / name, manifest["files"][name], problems)
        if problems:
            raise ValueError(problems[0])


def _split_problems(folder: Path, manifest: Mapping[str, Any], split: str, whole: set[str]) -> Iterator[str]:
    """One line for each column with values that are out of range, of the files that are whole."""
    schema = Schema.from_dict(manifest["schema"])
    if rows_file(split) in whole:
        yield from _row_problems(folder / rows_file(split), schema, has_labels=has_labels(manifest))
    for index, feature in enumerate(schema.features):
        if feature.multi_hot and {values_file(split, index), offsets_file(split, index)} <= whole:
            yield from _bag_problems(folder, split, index, feature.num_embeddings)


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
        problems.append(f"{path} must have the SHA-256 {entry['sha256']}, got {digest}: it was damaged or changed.")
    return True


class _Check(NamedTuple):
    """The rule of a column: which of some records is it, and where is it right?"""

    name: str
    rule: str
    select: Callable[[np.ndarray], np.ndarray]
    is_right: Callable[[np.ndarray], np.ndarray]


def _row_problems(path: Path, schema: Schema, *, has_labels: bool) -> Iterator[str]:
    rule = "0 or 1" if has_labels else "NaN where rows have none"
    checks = [_Check("label", rule, itemgetter("label"), (lambda x: (x == 0) | (x == 1)) if has_labels else np.isnan)]
    if schema.has_weights:
        rule = "a finite number of at least 0"
        checks.append(_Check("weight", rule, itemgetter("weight"), lambda x: np.isfinite(x) & (x >= 0)))
    for index, name in enumerate(schema.dense):
        checks.append(_Check(name, "a finite number", _dense(index), np.isfinite))
    for index, feature in enumerate(schema.features):
        if not feature.multi_hot:
            checks.append(_id_check(feature.name, feature.num_embeddings, itemgetter(f"id{index}")))
    return _wrong_values(path, map_file(path, record_dtype(schema)), checks)


def _bag_problems(folder: Path, split: str, index: int, num_embeddings: int) -> Iterator[str]:
    path = folder / values_file(split, index)
    ids = map_file(path, id_dtype(num_embeddings))
    yield from _wrong_values(path, ids, [_id_check("ids", num_embeddings, lambda ids: ids)])
    path = folder / offsets_file(split, index)
    offsets = map_file(path, OFFSET)
    if offsets[0] != 0 or offsets[-1] != len(ids) or np.any(np.diff(offsets) < 0):
        yield f"{path} must rise from 0 to {len(ids)}, got {offsets[0]} to {offsets[-1]}."


def _wrong_values(path: Path, records: np.ndarray, checks: Sequence[_Check]) -> Iterator[str]:
    """A line for the first wrong value of each column; chunks of all columns, since these lie side by side."""
    left = list(checks)
    for start in range(0, len(records), CHUNK):
        chunk = records[start : start + CHUNK]
        for check in tuple(left):
            column = check.select(chunk)
            right = check.is_right(column)
            if not right.all():
                row = int(np.flatnonzero(~right)[0])
                yield f"{path}, row {start + row}: {check.name} must be {check.rule}, got {column[row]}."
                left.remove(check)


def _id_check(name: str, num_embeddings: int, select: Callable[[np.ndarray], np.ndarray]) -> _Check:
    return _Check(name, f"in [0, {num_embeddings})", select, lambda ids: (ids >= 0) & (ids < num_embeddings))


def _dense(index: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda records: records["dense"][:, index]


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
