"""Nested values as plain values and named tensors, and back: what is sent to other processes, and what is saved.

Nothing is pickled: plain values are JSON's, with keys that are not strings, tuples and tensors written as marked lists.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

MARK = "="  # the one key of a dictionary that stands for something else


def pack(value: Any, tensors: dict[str, Tensor], name: str = "") -> Any:
    """`value` in plain values; its tensors go to `tensors`, under names that say where they were."""
    if isinstance(value, Tensor):
        tensors[name] = value.detach()
        return {MARK: ["tensor", name]}
    if isinstance(value, dict):
        return {MARK: ["dict", [[key, pack(item, tensors, f"{name}.{key}")] for key, item in value.items()]]}
    if isinstance(value, list | tuple):
        items = [pack(item, tensors, f"{name}.{index}") for index, item in enumerate(value)]
        return {MARK: ["tuple", items]} if isinstance(value, tuple) else items
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{name or 'value'} must hold plain values and tensors to be saved, got {type(value).__name__}.")


def unpack(plain: Any, tensors: dict[str, Tensor]) -> Any:
    """The value that `pack` was given."""
    if isinstance(plain, list):
        return [unpack(item, tensors) for item in plain]
    if not isinstance(plain, dict):
        return plain
    kind, content = plain[MARK]
    if kind == "tensor":
        return tensors[content]
    if kind == "tuple":
        return tuple(unpack(item, tensors) for item in content)
    return {key: unpack(item, tensors) for key, item in content}
