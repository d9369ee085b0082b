"""Models by name, or from a user's own file.

A model is any `nn.Module` that takes a `Batch` to logits `(batch)`. It is made by a callable
`(schema, tables, **options)`, where `tables` is the `EmbeddingCollection` of the schema's features.
"""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from cce.checks import check_type
from cce.collection import EmbeddingCollection
from cce.models.dcnv2 import DCNv2
from cce.models.deepfm import DeepFM
from cce.models.dlrm import DLRM
from cce.models.gmf import GMF
from cce.models.mlp import MLP
from cce.plugins import run_file
from cce.schema import Schema

MODELS: dict[str, Callable[..., nn.Module]] = {"dlrm": DLRM, "gmf": GMF, "mlp": MLP, "deepfm": DeepFM, "dcnv2": DCNv2}


def create_model(name: str, schema: Schema, tables: EmbeddingCollection, **options: Any) -> nn.Module:
    """The model of a name in `MODELS`, or `path/to/file.py:Name` for one of your own."""
    make = find_model(name)
    try:
        inspect.signature(make).bind(schema, tables, **options)
    except TypeError as error:
        raise TypeError(f"model {name!r} could not be made with options {options}: {error}.") from error
    model = make(schema, tables, **options)
    if not isinstance(model, nn.Module):
        raise TypeError(f"model {name!r} must make a torch module, got {type(model).__name__}.")
    return model


def register_model(name: str, make: Callable[..., nn.Module]) -> None:
    """Add a model of your own by name: a class or function `(schema, tables, **options)`; a name can be given once."""
    check_type("name of a model", name, str, "a word")
    if not name or ":" in name:
        raise ValueError(f"name of a model must be a word without a colon, got {name!r}.")
    if name in MODELS:
        raise ValueError(f"name of a model must be new, got {name!r}, which there is.")
    if not callable(make):
        raise TypeError(f"make must be a class or function (schema, tables, **options), got {make!r}.")
    MODELS[name] = make


def find_model(name: str) -> Callable[..., nn.Module]:
    """What makes the model of this name."""
    check_type("model", name, str, "a name")
    if name in MODELS:
        return MODELS[name]
    file, _, attribute = name.rpartition(":")
    if not file:
        raise ValueError(f"model must be one of {', '.join(MODELS)}, or path/to/file.py:Name; got {name!r}.")
    module = run_file(Path(file), "model")
    if not callable(getattr(module, attribute, None)):
        raise ValueError(f"model names {attribute!r}, but {file} has no such class or function.")
    return getattr(module, attribute)  # type: ignore[no-any-return]


def model_note(name: str, schema: Schema, options: Mapping[str, Any]) -> str | None:
    """What one should know before this model is trained on data of this schema, in one line."""
    if name != "dlrm" or schema.dense or options.get("concatenate"):
        return None
    return (
        "without dense features model 'dlrm' sees dot products of vectors and nothing else: "
        "model_options concatenate=true shows it the vectors, as deepfm, dcnv2 and mlp do"
    )
