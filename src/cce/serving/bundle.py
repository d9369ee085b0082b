"""Bundles: a frozen model's tables, with its other weights, in one safetensors file that `numpy_reader` maps.

The metadata of the file describe the tables as JSON (`docs/format.md`). Tensors are written piece by piece, the widest
types first, so that each lies at a multiple of its own size and can be mapped as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cce.collection import feature_name
from cce.indexing import blocks
from cce.serving.collection import FrozenCollection
from cce.serving.frozen_tables import FrozenRows, FrozenTable, row_spec

FORMAT, VERSION = "cce-bundle", "1"
SEPARATOR = "/"  # between the name of a table and that of its tensor; modules are named with dots
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
PIECE = 1 << 22  # values written at a time
BLOCK = 1 << 16  # ids of a table in full made at a time


@dataclass(frozen=True)
class Entry:
    """A tensor of the file, and where its values come from, in order."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    pieces: Callable[[], Iterator[Tensor]]

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return int(torch.Size(self.shape).numel()) * self.dtype.itemsize


def write_bundle(path: Path, model: nn.Module) -> None:
    """Write a frozen model; a table that is not made of rows is written in full, block by block."""
    tables = frozen_tables(model)
    entries: dict[str, Entry] = {}
    specs: dict[str, dict[str, Any]] = {}
    for name, table in tables.items():
        if isinstance(table, FrozenRows):
            specs[name] = table.spec()
            entries |= {f"{name}{SEPARATOR}{inside}": _whole(tensor) for inside, tensor in table.tensors().items()}
        else:
            specs[name] = row_spec(table)
            entries[f"{name}{SEPARATOR}rows.values"] = _in_full(table)
    _write(path, entries | _other_weights(model, tables), _describe(model, specs))


def frozen_tables(model: nn.Module) -> dict[str, FrozenTable]:
    """The tables of a frozen model by the path of their module."""
    return {name or "table": module for name, module in model.named_modules() if isinstance(module, FrozenTable)}


def _describe(model: nn.Module, specs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Tables, and which feature of which collection has which."""
    collections = {}
    for path, module in model.named_modules():
        if isinstance(module, FrozenCollection):
            prefix = f"{path}." if path else ""
            keys = {feature_name(key): f"{prefix}tables.{key}" for key in module.tables._modules}
            collections[path or "collection"] = {
                "features": module.features,
                "tables": keys,
                "pooling": module.pooling,
                "unified": module.unified,
                "padding_idx": module.padding_idx,
            }
    return {"tables": specs, "collections": collections}


def _other_weights(model: nn.Module, tables: dict[str, FrozenTable]) -> dict[str, Entry]:
    inside = tuple(f"{name}." for name in tables)
    weights = {} if "table" in tables else model.state_dict()
    return {
        f"model{SEPARATOR}{name}": _whole(tensor) for name, tensor in weights.items() if not name.startswith(inside)
    }


def _whole(tensor: Tensor) -> Entry:
    return Entry(
        tensor.dtype, tuple(tensor.shape), lambda: iter(torch.split(tensor.detach().contiguous().view(-1), PIECE))
    )


def _in_full(table: FrozenTable) -> Entry:
    def vectors() -> Iterator[Tensor]:
        with torch.no_grad():
            for ids in blocks(table.num_embeddings, BLOCK):
                yield table(ids)

    return Entry(torch.float32, (table.num_embeddings, table.embedding_dim), vectors)


def _write(path: Path, entries: dict[str, Entry], spec: dict[str, Any]) -> None:
    ordered = sorted(entries.items(), key=lambda entry: (-entry[1].dtype.itemsize, entry[0]))
    metadata = {"format": FORMAT, "version": VERSION, "spec": json.dumps(spec)}
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, entry in ordered:
        start, end = end, end + entry.nbytes
        header[name] = {"dtype": DTYPES[entry.dtype], "shape": list(entry.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the tensors begin at a multiple of 8
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, entry in ordered:
            for piece in entry.pieces():
                file.write(piece.contiguous().view(-1).view(torch.uint8).numpy().data)
