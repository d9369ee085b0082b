"""How prepared rows lie on disk: one record of fixed width a row, each value in the smallest type that holds it.

A split is one memory-mapped file of records, since a shuffled batch then reads one stretch of memory a row rather than
one a row and column (`python -m benchmarks.loader` measures both). A multi-hot feature has two files more: all its ids,
and where each row's begin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from cce.schema import Schema

ID_TYPES = ("<u1", "<u2", "<i4", "<u4", "<i8")
FLOAT, OFFSET = np.dtype("<f4"), np.dtype("<i8")


def id_dtype(num_embeddings: int) -> np.dtype[np.integer]:
    """The smallest type that holds every id."""
    fitting = (np.dtype(name) for name in ID_TYPES if np.iinfo(name).max >= num_embeddings - 1)
    return next(fitting)


def record_dtype(schema: Schema) -> np.dtype[np.void]:
    """The record of a row: `label`, `weight`, `dense`, and the ids of one-hot features by index: `id0`, `id1`, ….

    Wide values come first and the width is a multiple of the widest, so every value is aligned.
    """
    columns: list[tuple[str, np.dtype[Any], int]] = [("label", FLOAT, 1)]
    columns += [("weight", FLOAT, 1)] if schema.has_weights else []
    columns += [("dense", FLOAT, len(schema.dense))] if schema.dense else []
    one_hot = ((index, feature) for index, feature in enumerate(schema.features) if not feature.multi_hot)
    columns += [(f"id{index}", id_dtype(feature.num_embeddings), 1) for index, feature in one_hot]
    columns.sort(key=lambda column: -column[1].itemsize)
    names, formats, offsets, width = [], [], [], 0
    for name, kind, count in columns:
        names.append(name)
        formats.append((kind, (count,)) if name == "dense" else kind)
        offsets.append(width)
        width += kind.itemsize * count
    widest = columns[0][1].itemsize
    itemsize = -(-width // widest) * widest
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": itemsize})


def rows_file(split: str) -> str:
    """The name of a split's file of records."""
    return f"{split}.rows"


def values_file(split: str, index: int) -> str:
    """The name of the file of all ids of a multi-hot feature."""
    return f"{split}.{index}.values"


def offsets_file(split: str, index: int) -> str:
    """The name of the file that says where each row's ids begin: one offset more than there are rows."""
    return f"{split}.{index}.offsets"


def split_files(schema: Schema, split: str) -> list[str]:
    """The names of all files of a split."""
    bags = [index for index, feature in enumerate(schema.features) if feature.multi_hot]
    return [rows_file(split), *(name(split, index) for index in bags for name in (values_file, offsets_file))]


def map_file(path: Path, dtype: np.dtype[Any]) -> np.ndarray:
    """The values of a file, read when they are accessed."""
    if path.stat().st_size == 0:
        return np.empty(0, dtype)  # an empty file cannot be mapped
    return np.memmap(path, dtype, mode="r").view(np.ndarray)
