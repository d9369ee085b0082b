"""Features made of another column: parts of a time, buckets and bins of numbers. Values are translated once each."""

from __future__ import annotations

import math
from datetime import date
from typing import TYPE_CHECKING

import numpy as np

from cce.data.prepare.arrow import Words, as_values, hex_words, texts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cce.data.prepare.arrow import Values
    from cce.data.prepare.columns import Columns, Reading


def translate(words: Words, name: str, columns: Columns, reading: Reading) -> Words:
    """The words of a feature, from those of its column."""
    function = next((how for feature, _, how in columns.derived if feature == name), None)
    if function is not None:
        return _mapped(words, FUNCTIONS[function], name)
    edges = next((edges for feature, edges in reading.edges if feature == name), None)
    if edges is not None:
        return Words(words.indices, bin_words(words.values, edges, name), words.lengths)
    if reading.is_hex and name in columns.features:
        return Words(words.indices, hex_words(words.values, reading.modulus), words.lengths)
    return words


def bin_words(values: Values, edges: Sequence[float], name: str) -> Values:
    """The number of the bin that each value lies in, as a word: bin `i` holds what is at least the `i`-th edge."""
    numbers = as_floats(values, name)
    return as_values([str(index) for index in np.searchsorted(np.asarray(edges), numbers, side="right").tolist()])


def bin_edges(numbers: np.ndarray, counts: np.ndarray, num_bins: int) -> list[float]:
    """At most `num_bins - 1` distinct edges that cut the counted numbers into parts of about the same count."""
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(counts[order])
    wanted = ends[-1] * np.arange(1, num_bins) / num_bins if len(ends) else np.empty(0)
    indices = np.searchsorted(ends, wanted, side="left") + 1  # the first number after so many rows
    found: list[float] = np.unique(numbers[order][indices[indices < len(ends)]]).tolist()
    return found


def as_floats(values: Values, name: str) -> np.ndarray:
    """Words as numbers; one that is none is rejected."""
    texts = texts_of(values)
    try:
        numbers = np.array([float(text) for text in texts], np.float64)
    except ValueError as error:
        raise ValueError(f"{name} must hold numbers to be cut into bins: {error}.") from error
    if not np.isfinite(numbers).all():
        wrong = texts[int(np.flatnonzero(~np.isfinite(numbers))[0])]
        raise ValueError(f"{name} must hold finite numbers to be cut into bins, got {wrong!r}.")
    return numbers


def _mapped(words: Words, function: Callable[[str], str | None], name: str) -> Words:
    """Each distinct value by a function; None is a missing value."""
    try:
        mapped = [function(text) for text in texts_of(words.values)]
    except (ValueError, IndexError) as error:
        raise ValueError(f"{name} could not be made of its column: {error}.") from error
    gone = np.array([*(value is None for value in mapped), True])  # the last one is for the index -1
    indices = np.where(gone[words.indices], np.int32(-1), words.indices)
    return Words(indices, as_values([value or "" for value in mapped]), words.lengths)


def _date(text: str) -> date:
    if len(text) != 8 or not text.isdigit():
        raise ValueError(f"a time must be YYMMDDHH, got {text!r}")
    return date(2000 + int(text[:2]), int(text[2:4]), int(text[4:6]))


def _hour(text: str) -> str:
    _date(text)
    return text[6:8]


def _weekday(text: str) -> str:
    return _date(text).strftime("%w")  # 0 is Sunday


def _weekend(text: str) -> str:
    return str(int(_date(text).isoweekday() > 5))


def _log_squared(text: str) -> str | None:
    """`⌊ln(x)²⌋` above 2, the integer itself up to 2; 0 is the same as missing."""
    number = float(text)
    bucket = math.floor(math.log(number) ** 2) if number > 2 else int(number)
    return str(bucket) if bucket else None


FUNCTIONS: dict[str, Callable[[str], str | None]] = {
    "hour": _hour,
    "weekday": _weekday,
    "weekend": _weekend,
    "log-squared": _log_squared,
}
