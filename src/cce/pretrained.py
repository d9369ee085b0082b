"""`save_pretrained` and `from_pretrained` for models of one's own, on folders, as Hugging Face has them.

The folder holds `config.json`, the arguments of the constructor, and `model.safetensors`, which `cce.save` wrote.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

from torch import nn

from cce.arguments import RemembersArguments, arguments_of
from cce.checks import check_type
from cce.files import write_atomic
from cce.saving import load, save

CONFIG, MODEL = "config.json", "model.safetensors"


class PretrainedMixin(RemembersArguments):
    """Gives a module both methods: `class Mine(cce.PretrainedMixin, nn.Module)`.

    The arguments of its constructor must be plain values: numbers, words, lists and dictionaries of them. What
    `cce.compress` does to it afterwards is in the file of the model.
    """

    def save_pretrained(self, folder: Path | str) -> None:
        """Write the model to a folder, which is made if it is missing."""
        check_type("the model", self, nn.Module, "a torch.nn.Module as well")
        arguments, where = arguments_of(self), Path(folder)
        try:
            config = json.dumps({"class": type(self).__name__, "arguments": arguments}, indent=1)
        except (TypeError, ValueError) as error:
            raise TypeError(f"arguments of {type(self).__name__} must be plain values to be saved: {error}.") from error
        save(self, where / MODEL)  # type: ignore[arg-type]  # it is a module: see above
        write_atomic(where / CONFIG, config + "\n")

    @classmethod
    def from_pretrained(cls, folder: Path | str, **changes: Any) -> Self:
        """Make the model that was saved in a folder; `changes` are arguments to be made with instead."""
        path = Path(folder) / CONFIG
        if not path.is_file():
            raise FileNotFoundError(f"{folder} must be a folder that save_pretrained wrote, got no {CONFIG} there.")
        try:
            config = json.loads(path.read_bytes())
            name, arguments = config["class"], dict(config["arguments"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} must be as save_pretrained wrote it, and it is not: {error}.") from error
        if name != cls.__name__:
            raise ValueError(f"{folder} must hold a {cls.__name__}, got a {name}.")
        made = cls(**(arguments | changes))
        load(path.with_name(MODEL), into=made)  # type: ignore[arg-type]
        return made
