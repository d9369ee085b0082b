"""The model of a run, made of the options that its checkpoints hold, and nothing that only training needs; and the
random numbers of the process, which are seeded when it is made, saved and restored.

`options` are those of a `ResolvedConfig`, by name.
"""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from cce.budget import MEASURES, Budget
from cce.clustering import ClusterSettings
from cce.collection import EmbeddingCollection
from cce.models import MODELS, create_model, find_model
from cce.plugins import check_plugins
from cce.schema import Schema
from cce.training.checkpoint import Checkpoint, explained_misfits


def make_model(options: Mapping[str, Any], schema: Schema) -> nn.Module:
    """The model with its tables, from the seed alone."""
    seed, dim = options["seed"], options["embedding_dim"]
    sparse = bool(options["method_options"].get("sparse"))
    seed_everything(seed)
    given = table_arguments(options) | {"shard": bool(options.get("shard")), "sparse": sparse, "seed": seed}
    try:
        tables = EmbeddingCollection(schema.vocabulary_sizes, dim, **given)
    except RuntimeError as error:
        if "allocate memory" not in str(error):
            raise
        wanted = f"method {options['method']!r} and embedding_dim={dim}"
        raise MemoryError(f"tables must fit into memory, but those of {wanted} do not.") from error
    return create_model(options["model"], schema, tables, **options["model_options"])


def table_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """How the tables of a run are made and sized, as `plan_tables` and `EmbeddingCollection` take it."""
    method, by_method = options["method"], dict(options["table_options"])
    own = by_method[method]
    if isinstance(own.get("settings"), dict):  # in a file a table of names and values
        try:
            by_method[method] = own | {"settings": ClusterSettings(**own["settings"])}
        except (TypeError, ValueError) as error:
            raise type(error)(f"method_options settings must be those of ClusterSettings: {error}") from error
    is_sized_later = options["trains_as_rows"] and options["nbytes"] is not None and not options["stream"]
    budget = Budget() if is_sized_later else Budget(**{name: options[name] for name in MEASURES})
    return {"method": method, "options": by_method, "budget": budget}


def load_model(checkpoint: Checkpoint, *, model: str | None = None) -> tuple[dict[str, Any], nn.Module]:
    """The options and the model of a checkpoint; code that is not of this package is run only if it is `model`."""
    options = dict(checkpoint.get("resolved", dict))
    with explained_misfits(checkpoint.path):
        plugins, name = list(options["plugins"]), str(options["model"])
    check_plugins(plugins)
    options["model"] = trusted_model(name, model, checkpoint.path)
    find_model(options["model"])  # what is wrong with its file is not the checkpoint's fault
    with explained_misfits(checkpoint.path):
        made = make_model(options, read_schema(checkpoint))
        made.load_state_dict(checkpoint.model)
    return options, made


def trusted_model(name: str, given: str | None, where: Path) -> str:
    """The model's name, or the one that was given again: a saved name may lead to anyone's code."""
    if given is None and name not in MODELS:
        hint = "give the model again (--model) if you know who made it"
        raise PermissionError(f"model of {where} must be trusted, as its code would be run, got {name!r}: {hint}.")
    return name if given is None else given


def read_schema(checkpoint: Checkpoint) -> Schema:
    with explained_misfits(checkpoint.path):
        return Schema.from_dict(checkpoint.get("schema", dict))


def seed_everything(seed: int) -> None:
    """Start the random numbers of torch, Python and numpy at a seed."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002


def random_state() -> dict[str, Any]:
    """The states of torch (on every device), Python and numpy."""
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002  # what a user's model may draw from
    return {
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state(device) for device in range(torch.cuda.device_count())],
        "python": random.getstate(),
        "numpy": (str(kind), torch.from_numpy(np.asarray(keys, np.int64)), *rest),
    }


def restore_random_state(state: dict[str, Any]) -> None:
    """Go on where `random_state` was taken; devices that were not there keep their own."""
    torch.set_rng_state(state["torch"])
    for device, cuda in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(cuda, device)
    random.setstate(state["python"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002


@contextmanager
def kept_random_state() -> Iterator[None]:
    """Leave the random numbers of the process as they were: a model that is built seeds them all."""
    before = random_state()
    try:
        yield
    finally:
        restore_random_state(before)
