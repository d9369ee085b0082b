"""How a prepared data set lies on disk: records of fixed width, and a manifest of files with their checksums.

A split is one memory-mapped file of records, each value in the smallest type that holds it: a shuffled batch then reads
one stretch of memory a row rather than one a row and column (`python -m benchmarks.loader` measures both). A multi-hot
feature has two files more: all its ids, and where each row's begin. A manifest is checked as a whole when it is read: a
damaged one is rejected with the name of its file.

Files are made with their final size in a temporary folder, `OUT.part`, filled in any order, and sealed with a manifest.
The folder takes its own name as the last step: what has that name is whole.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from cce.data.raw_files import JSON_LINES, find_format
from cce.files import flush, named_full_disk, no_folder
from cce.schema import Schema
from cce.version import __version__

ID_TYPES = ("<u1", "<u2", "<i4", "<u4", "<i8")
FLOAT, OFFSET = np.dtype("<f4"), np.dtype("<i8")


def id_dtype(num_embeddings: int | None) -> np.dtype[np.integer]:
    """The smallest type that holds every id."""
    if num_embeddings is None:
        return np.dtype("<i8")
    fitting = (np.dtype(name) for name in ID_TYPES if np.iinfo(name).max >= num_embeddings - 1)
    return next(fitting)


def record_dtype(schema: Schema) -> np.dtype[np.void]:
    """The record of a row: `label`, `weight`, `dense`, and the ids of one-hot features by index: `id0`, `id1`, ….

    Wide values come first and the width is a multiple of the widest, so every value is aligned.
    """
    columns: list[tuple[Any, ...]] = [("label", FLOAT)]
    columns += [("weight", FLOAT)] if schema.has_weights else []
    columns += [("dense", FLOAT, (len(schema.dense),))] if schema.dense else []
    one_hot = ((index, feature) for index, feature in enumerate(schema.features) if not feature.multi_hot)
    columns += [(f"id{index}", id_dtype(feature.num_embeddings)) for index, feature in one_hot]
    return np.dtype(sorted(columns, key=lambda column: -column[1].itemsize), align=True)


def rows_file(split: str) -> str:
    return f"{split}.rows"


def values_file(split: str, index: int) -> str:
    return f"{split}.{index}.values"


def offsets_file(split: str, index: int) -> str:
    """The name of the file that says where each row's ids begin: one offset more than there are rows."""
    return f"{split}.{index}.offsets"


def split_files(schema: Schema, split: str) -> list[str]:
    bags = [index for index, feature in enumerate(schema.features) if feature.multi_hot]
    return [rows_file(split), *(name(split, index) for index in bags for name in (values_file, offsets_file))]


def map_file(path: Path, dtype: np.dtype[Any]) -> np.ndarray:
    """The values of a file, read when they are accessed."""
    if path.stat().st_size == 0:
        return np.empty(0, dtype)  # an empty file cannot be mapped
    return np.memmap(path, dtype, mode="r").view(np.ndarray)


FORMAT = 2  # from 2 on, unseen and missing values have two ids
MANIFEST = "manifest.json"
SPLITS = ("train", "validation", "test")
SHA256 = re.compile(r"[0-9a-f]{64}")


def read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"{folder} must be a data set made by `cce prepare`, got no {MANIFEST} there.")
    try:
        manifest = json.loads(path.read_bytes())
    except ValueError as error:  # neither JSON nor UTF-8
        raise ValueError(f"{path} must be JSON as `cce prepare` wrote it, and it is damaged: {error}.") from error
    try:
        return _checked(manifest)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} must be as `cce prepare` wrote it: {error}") from error


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def list_parts(paths: Iterable[str | Path]) -> list[Path]:
    """The parts of a stream: data sets and raw files as they are given, and those in other folders by their names."""
    found = []
    for path in map(Path, paths):
        if not path.is_dir() or (path / MANIFEST).exists():
            found.append(path)
            continue
        inside = [each for each in sorted(path.iterdir()) if not each.name.startswith((".", "_"))]
        raw = [each for each in inside if each.suffix == JSON_LINES or find_format(each, default="")]
        found += [each for each in inside if (each / MANIFEST).exists() or (each.is_file() and each in raw)]
    return found


# -- writing -----------------------------------------------------------------------------------------------------------


def check_new(out: Path) -> None:
    """Reject a path that exists, or that lies below a file."""
    if out.exists() or out.is_symlink():
        raise FileExistsError(f"{out} must not exist already: remove it or choose another name.")
    above = no_folder(out.parent)
    if above is not None:
        raise NotADirectoryError(f"{out} must lie in a folder, got {above} above it.")


def temporary_folder(out: Path) -> Path:
    return out.with_name(out.name + ".part")


def create_files(
    folder: Path, schema: Schema, num_rows: Mapping[str, int], num_values: Mapping[tuple[str, int], int] | None = None
) -> None:
    """Empty files of their final size for this many rows a split, and this many ids a split and multi-hot feature."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in num_rows.items():
        _create(folder / rows_file(split), count * record_dtype(schema).itemsize)
        for index, feature in enumerate(schema.features):
            if feature.multi_hot:
                size = (num_values or {})[split, index] * id_dtype(feature.num_embeddings).itemsize
                _create(folder / values_file(split, index), size)
                _create(folder / offsets_file(split, index), (count + 1) * OFFSET.itemsize)


def write_at(path: Path, start: int, values: np.ndarray) -> None:
    """Write values into a file from the `start`-th value on."""
    with named_full_disk(path), path.open("r+b") as file:
        file.seek(start * values.dtype.itemsize)
        file.write(values.tobytes())


def seal(folder: Path, out: Path, schema: Schema, contents: Mapping[str, Any]) -> dict[str, Any]:
    """Checksum the files, write the manifest, and rename the folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        flush(path)
    manifest = {
        "format": FORMAT,
        "cce": __version__,
        "schema": schema.to_dict(),
        **contents,
        "files": {
            path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": checksum(path)}
            for path in files
        },
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    flush(folder / MANIFEST)
    check_new(out)
    os.rename(folder, out)
    return manifest


def _create(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


# -- checks ------------------------------------------------------------------------------------------------------------


def _checked(manifest: Any) -> dict[str, Any]:
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"it must be an object of format {FORMAT}; prepare the data again if it is of another one.")
    for name, kind in {"kind": str, "schema": dict, "splits": dict, "files": dict}.items():
        if not isinstance(manifest.get(name), kind):
            raise TypeError(f"{name} must be a {kind.__name__}, got {manifest.get(name)!r}.")
    schema, splits, files = Schema.from_dict(manifest["schema"]), manifest["splits"], manifest["files"]
    for name, entry in files.items():
        _check_file(name, entry)
    if not splits:
        raise ValueError("splits must name at least one split, got none.")
    for split, count in splits.items():
        if split not in SPLITS or type(count) is not int or count < 0:
            raise ValueError(f"splits must have whole numbers of {', '.join(SPLITS)} rows, got {count!r} of {split!r}.")
        _check_listed(schema, split, count, files)
    return manifest


def _check_listed(schema: Schema, split: str, count: int, files: dict[str, Any]) -> None:
    """Every file that a reader opens is listed, and that of the rows has the bytes that this many take."""
    for name in split_files(schema, split):
        if name not in files:
            raise ValueError(f"files must list {name}, got {', '.join(files) or 'none'}.")
    size, found = count * record_dtype(schema).itemsize, files[rows_file(split)]["bytes"]
    if found != size:
        raise ValueError(f"bytes of file {rows_file(split)} must be {size} for its rows, got {found}.")


def _check_file(name: str, entry: Any) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name:
        raise ValueError(f"files must lie within the data set's folder, got {name!r}.")
    if not isinstance(entry, dict) or type(entry.get("bytes")) is not int or entry["bytes"] < 0:
        raise ValueError(f"bytes of file {name} must be a whole number of at least 0, got {entry!r}.")
    if not isinstance(entry.get("sha256"), str) or not SHA256.fullmatch(entry["sha256"]):
        raise ValueError(f"sha256 of file {name} must have 64 hexadecimal digits, got {entry.get('sha256')!r}.")
