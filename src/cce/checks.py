"""Argument checks: every error names the argument, the rule and the value. And objects that know their arguments."""

import difflib
import inspect
import math
import operator
from collections.abc import Iterable
from numbers import Real
from typing import Any, Self

START_SCALES = ("uniform", "dlrm", "zero")
NOT_KEPT = ("device", "dtype", "generator")  # the object may have moved, and the generator has been used
MOST_SHOWN = 80  # characters of a value in an error


def check_range(name: str, value: int, low: int, high: int) -> None:
    """Reject an integer outside `[low, high)`."""
    try:
        whole = operator.index(value)  # numpy's integers are accepted
    except TypeError:
        whole = None
    if whole is None or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {shown(value)} of type {type(value).__name__}.")
    if not low <= value < high:
        raise ValueError(f"{name} must lie in [{low}, {_power(high)}), got {value}.")


def check_number(name: str, value: object, at_least: float = 0) -> None:
    """Reject anything but a finite number of at least `at_least`."""
    if isinstance(value, bool) or not isinstance(value, Real):  # numpy's scalars are accepted
        raise TypeError(f"{name} must be a number, got {shown(value)} of type {type(value).__name__}.")
    if not (math.isfinite(value) and float(value) >= at_least):
        bound = "" if at_least == -math.inf else f" of at least {at_least:g}"
        raise ValueError(f"{name} must be a finite number{bound}, got {value}.")


def check_flag(name: str, value: bool) -> None:  # noqa: FBT001
    """Reject anything but True and False: a string such as "no" would count as True."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {shown(value)}.")


def check_type(name: str, value: object, kind: type | tuple[type, ...], wanted: str) -> None:
    """Reject a value of another type; `wanted` describes the right one."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {wanted}, got {shown(value)} of type {type(value).__name__}.")


def shown(value: object) -> str:
    """A value as an error shows it: in one short line."""
    line = " ".join(repr(value).split())
    return line if len(line) <= MOST_SHOWN else line[: MOST_SHOWN - 1] + "…"


def check_function(name: str, value: object, result: str) -> None:
    """Raise unless `value` is a function or None."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be a function that returns {result}, got {shown(value)}.")


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Reject a string that is not among `choices`."""
    allowed = tuple(choices)
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {shown(value)}.")


def check_known(problem: str, name: str, known: Iterable[str]) -> None:
    """Reject a name that is not known with this sentence, and suggest the closest match."""
    choices = list(known)
    if name not in choices:
        near = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(choices)}."
        raise ValueError(f"{problem}: {hint}")


def check_start_scale(name: str, value: object, words: Iterable[str] = START_SCALES) -> None:
    """Reject anything but a name of a start or a number above 0."""
    if isinstance(value, str):
        if value not in words:
            raise ValueError(f"{name} must be one of {', '.join(words)}, or a number; got {shown(value)}.")
        return
    check_number(name, value)
    if value == 0:
        raise ValueError(f"{name} must be above 0, or 'zero', got {value}.")


def check_divides(name: str, parts: int, whole_name: str, whole: int) -> None:
    """Reject a `whole` that `parts` does not divide."""
    check_range(name, parts, 1, 2**31)
    if whole % parts:
        raise ValueError(f"{whole_name} must be a multiple of {name}, got {whole_name}={whole} and {name}={parts}.")


def _power(value: int) -> str:
    exponent = round(math.log2(value)) if value > 0 else 0
    return f"2**{exponent}" if exponent >= 16 and value == 2**exponent else str(value)


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
