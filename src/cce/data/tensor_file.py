"""Files of named arrays in the safetensors format, memory-mapped: opening one reads its header and nothing else.

Eight bytes with the length of the header (little-endian), the header in JSON, then the bytes of all arrays. The file
may lie within another one, such as an archive that does not compress it.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from cce.files import usual_permissions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_HEADER = 100_000_000  # bytes; the limit of the format
METADATA = "__metadata__"
DTYPES = {"U8": "<u1", "I32": "<i4", "I64": "<i8", "U64": "<u8", "F32": "<f4"}


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write a file of arrays."""
    try:
        with usual_permissions(path):
            save_file(dict(arrays), path, dict(metadata))
    except (OSError, SafetensorError) as error:
        raise OSError(f"{path} could not be written: {error}.") from error


def map_arrays(path: Path, start: int = 0) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays of a file, read when they are accessed, and its metadata; `start` is where it lies within `path`."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            length = int.from_bytes(file.read(8), "little")
            if length > MAX_HEADER:
                raise ValueError(f"a header of {length} bytes")
            header = json.loads(file.read(length))
        metadata = header.pop(METADATA, {})
        return {name: _map_array(path, start + 8 + length, entry) for name, entry in header.items()}, metadata
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} must be a whole safetensors file, and it is damaged: {error}.") from error


def _map_array(path: Path, start: int, entry: dict[str, Any]) -> np.ndarray:
    dtype, shape, (first, last) = np.dtype(DTYPES[entry["dtype"]]), tuple(entry["shape"]), entry["data_offsets"]
    if last - first != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{last - first} bytes for an array of shape {shape}")
    if first == last:
        return np.empty(shape, dtype)  # nothing cannot be mapped
    return np.memmap(path, dtype, "r", start + first, shape).view(np.ndarray)
