"""A trained model where it is used: frozen, exported, and read without this package. Names are loaded when used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cce.serving import numpy_reader
    from cce.serving.exporting import Export, export_model
    from cce.serving.freezing import Freezing, freeze, freeze_table, frozen_sizes
    from cce.serving.frozen_tables import FrozenTable
    from cce.serving.run_export import export_run

CODEBOOK_NAMES = ("float32", "float16", "bfloat16", "int8")
FORMAT_NAMES = ("safetensors", "pt2", "onnx", "dense")
POINTER_NAMES = ("packed", "bytes")

_HOMES = {
    "Export": "exporting",
    "Freezing": "freezing",
    "FrozenTable": "frozen_tables",
    "export_model": "exporting",
    "export_run": "run_export",
    "freeze": "freezing",
    "freeze_table": "freezing",
    "frozen_sizes": "freezing",
}

__all__ = [
    "CODEBOOK_NAMES",
    "FORMAT_NAMES",
    "POINTER_NAMES",
    "Export",
    "Freezing",
    "FrozenTable",
    "export_model",
    "export_run",
    "freeze",
    "freeze_table",
    "frozen_sizes",
    "numpy_reader",
]


def __getattr__(name: str) -> Any:
    if name == "numpy_reader":
        return import_module("cce.serving.numpy_reader")
    if name not in _HOMES:
        raise AttributeError(f"module 'cce.serving' has no attribute {name!r}")
    return getattr(import_module(f"cce.serving.{_HOMES[name]}"), name)
