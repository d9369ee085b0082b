"""Writing a prepared data set: files of known size filled in any order, then sealed with a manifest and renamed.

A data set is made in a temporary folder, `OUT.part`, and takes its own name as the last step: what has that name is
whole.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from cce.data.manifest import FORMAT, MANIFEST, checksum
from cce.data.record_format import OFFSET, id_dtype, offsets_file, record_dtype, rows_file, values_file
from cce.files import named_full_disk, no_folder
from cce.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np

    from cce.schema import Schema


def check_new(out: Path) -> None:
    """Reject a path that exists, or that lies below a file."""
    if out.exists() or out.is_symlink():
        raise FileExistsError(f"{out} must not exist already: remove it or choose another name.")
    above = no_folder(out.parent)
    if above is not None:
        raise NotADirectoryError(f"{out} must lie in a folder, got {above} above it.")


def temporary_folder(out: Path) -> Path:
    """The folder in which a data set is made."""
    return out.with_name(out.name + ".part")


def create_files(
    folder: Path, schema: Schema, num_rows: Mapping[str, int], num_values: Mapping[tuple[str, int], int] | None = None
) -> None:
    """Empty files of their final size for so many rows a split, and so many ids a split and multi-hot feature."""
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
        _sync(path)
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
    _sync(folder / MANIFEST)
    check_new(out)
    os.rename(folder, out)
    return manifest


def _create(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
