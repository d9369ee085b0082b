"""Bundles: a frozen model's tables, with its other weights, in one safetensors file that `numpy_reader` maps.

The metadata of the file describe the tables as JSON (`docs/format.md`). Safetensors writes the widest types first, so
that each tensor lies at a multiple of its own size and can be mapped as it is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn

from cce.collection import feature_name
from cce.files import usual_permissions
from cce.serving.collection import FrozenCollection
from cce.serving.frozen_tables import FrozenTable

FORMAT, VERSION = "cce-bundle", "1"


def write_bundle(path: Path, model: nn.Module) -> None:
    """Write a frozen model; a table that is not made of rows is written in full."""
    tables = frozen_tables(model)
    tensors = {f"{name}/{own}": each for name, table in tables.items() for own, each in table.tensors().items()}
    inside = tuple(f"{name}." for name in tables)
    weights = {} if "table" in tables else model.state_dict()
    others = {f"model/{name}": each.clone() for name, each in weights.items() if not name.startswith(inside)}
    spec = {"tables": {name: table.spec() for name, table in tables.items()}, "collections": _collections(model)}
    metadata = {"format": FORMAT, "version": VERSION, "spec": json.dumps(spec)}
    try:
        with usual_permissions(path):
            save_file({name: tensor.contiguous() for name, tensor in (tensors | others).items()}, path, metadata)
    except SafetensorError as error:
        raise OSError(f"{path} could not be written: {error}.") from error


def frozen_tables(model: nn.Module) -> dict[str, FrozenTable]:
    """The tables of a frozen model by the path of their module."""
    return {name or "table": module for name, module in model.named_modules() if isinstance(module, FrozenTable)}


def _collections(model: nn.Module) -> dict[str, Any]:
    """Which feature of which collection has which table."""
    collections = {}
    for path, module in model.named_modules():
        if isinstance(module, FrozenCollection):
            prefix = f"{path}." if path else ""
            collections[path or "collection"] = {
                "features": module.features,
                "tables": {feature_name(key): f"{prefix}tables.{key}" for key in module.tables._modules},
                "pooling": module.pooling,
                "unified": module.unified,
                "padding_idx": module.padding_idx,
            }
    return collections
