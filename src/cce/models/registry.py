"""Models by name, or from a user's own file.

A model is any `nn.Module` that takes a `Batch` to logits `(batch)`. It is made by a callable
`(schema, tables, **options)`, where `tables` is the `EmbeddingCollection` of the schema's features.
"""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from cce.checks import check_type
from cce.models.dlrm import DLRM
from cce.models.gmf import GMF

if TYPE_CHECKING:
    from collections.abc import Callable

    from cce.collection import EmbeddingCollection
    from cce.schema import Schema

MODELS: dict[str, Callable[..., nn.Module]] = {"dlrm": DLRM, "gmf": GMF}


def create_model(name: str, schema: Schema, tables: EmbeddingCollection, **options: Any) -> nn.Module:
    """The model `dlrm` or `gmf`, or `path/to/file.py:Name` for one of your own."""
    make = find_model(name)
    try:
        inspect.signature(make).bind(schema, tables, **options)
    except TypeError as error:
        raise TypeError(f"model {name!r} could not be made with options {options}: {error}.") from error
    model = make(schema, tables, **options)
    if not isinstance(model, nn.Module):
        raise TypeError(f"model {name!r} must make a torch module, got {type(model).__name__}.")
    return model


def find_model(name: str) -> Callable[..., nn.Module]:
    """What makes the model of this name."""
    check_type("model", name, str, "a name")
    if name in MODELS:
        return MODELS[name]
    file, _, attribute = name.rpartition(":")
    if not file:
        raise ValueError(f"model must be one of {', '.join(MODELS)}, or path/to/file.py:Name; got {name!r}.")
    path = Path(file)
    if not path.is_file():
        raise FileNotFoundError(f"model must name a file that is there, got {file!r}.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"model must name a Python file, got {file!r}.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"model must name a Python file that can be run, got {file!r}: {_reason(error)}.") from error
    if not callable(getattr(module, attribute, None)):
        raise ValueError(f"model names {attribute!r}, but {file} has no such class or function.")
    return getattr(module, attribute)  # type: ignore[no-any-return]


def _reason(error: Exception) -> str:
    """What went wrong in a file, in one line."""
    where = f" in line {error.lineno}" if isinstance(error, SyntaxError) else ""
    text = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    return f"{type(error).__name__}{where}: {text}"
