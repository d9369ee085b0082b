"""Rows → columns, so that a page stays small: names are written once, and so are words that come again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def pack(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Columns of values; a column of words is a list of the different ones, and places in it. `page.js` unpacks."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {"count": len(rows), "columns": {name: _column([row.get(name) for row in rows]) for name in names}}


def _column(values: list[Any]) -> Any:
    if any(isinstance(value, str) for value in values):
        words = list(dict.fromkeys(values))
        places = {word: place for place, word in enumerate(words)}
        return {"words": words, "at": [places[value] for value in values]}
    return [None if isinstance(value, float) and not math.isfinite(value) else value for value in values]
