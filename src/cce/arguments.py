"""Objects that know the arguments they were made with, so that a file can say how to make them again."""

from __future__ import annotations

import inspect
from typing import Any, Self

NOT_KEPT = ("device", "dtype", "generator")  # the object may have moved, and the generator has been used


class RemembersArguments:
    """A base whose objects know what their constructor was given; it is to be named before other bases."""

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Note what the constructor is about to get; a copy, which gets nothing, has what was copied."""
        made = super().__new__(cls)
        made.__dict__["_given"] = (args, {name: value for name, value in options.items() if name not in NOT_KEPT})
        return made


def arguments_of(made: RemembersArguments) -> dict[str, Any]:
    """The arguments that were given, by name."""
    args, options = made.__dict__["_given"]
    signature = inspect.signature(type(made))
    found = dict(signature.bind_partial(*args, **options).arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            found |= found.pop(name, {})
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL and found.get(name):
            raise TypeError(f"{type(made).__name__} must be made with named arguments to be saved, got *{name}.")
    return found
