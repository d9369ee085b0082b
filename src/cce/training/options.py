"""Options of a run, from files and words to a configuration and back to a file. No torch here."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from cce.training.config import TrainConfig


def read_toml(path: Path) -> dict[str, Any]:
    """The options of a TOML file, whose names are checked."""
    if not path.is_file():
        raise FileNotFoundError(f"config must name a file that is there, got {str(path)!r}.")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} must be TOML: {error}.") from error
    check_names(values, str(path))
    return values


def check_names(names: Iterable[str], where: str) -> None:
    """Reject unknown options and suggest the closest match."""
    known = [each.name for each in fields(TrainConfig)]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(known)}."
            raise ValueError(f"{where} has an option that is not known, {name!r}: {hint}")


def make_config(values: Mapping[str, Any]) -> TrainConfig:
    """The configuration of these values; a wrong name is rejected, and a wrong type."""
    check_names(values, "the configuration")
    if "data" not in values:
        raise ValueError("data must be given: the folder of a data set made by `cce prepare`.")
    return TrainConfig(**values)


def parse_pairs(name: str, pairs: Iterable[str]) -> dict[str, Any]:
    """`["bottom=[64,32]", "start=k-means++"]` as a dictionary: values are TOML, or else words."""
    values = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise ValueError(f"{name} must have the form NAME=VALUE, got {pair!r}.")
        try:
            values[key] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            values[key] = text
    return values


def to_toml(config: TrainConfig) -> str:
    """What `read_toml` reads; what is None is left out."""
    values = {each.name: getattr(config, each.name) for each in fields(config)}
    plain = [f"{name} = {_toml_value(value)}" for name, value in values.items() if not isinstance(value, dict | None)]
    tables = [
        "\n".join([f"\n[{name}]", *(_pair(key, item) for key, item in value.items())])
        for name, value in values.items()
        if isinstance(value, dict) and value
    ]
    return "\n".join([*plain, *tables]) + "\n"


def _toml_value(value: Any) -> str:
    """A value as it is written in a file, or after NAME= on the command line."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(_pair(key, item) for key, item in value.items()) + "}"
    if isinstance(value, float):
        return repr(value)  # nan and inf are words of TOML's as well
    return json.dumps(value, ensure_ascii=False)  # for strings, numbers and booleans, JSON is valid TOML


def _pair(key: str, value: Any) -> str:
    """A key that is no plain word, such as the name of a feature may be, is set in quotes."""
    plain = re.fullmatch("[A-Za-z0-9_-]+", key)
    return f"{key if plain else json.dumps(key, ensure_ascii=False)} = {_toml_value(value)}"
