"""A colour and a shape for each series, the same in all charts of a page.

Five of the first eight hues are Okabe and Ito's, made for all kinds of colour vision; the blue is lighter, to show on
black, and violet and olive are our own. Five more serve those who have more series; shapes differ as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

HUES = (
    *("#d55e00", "#2a7fc1", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#9a6fc4", "#8f8f2f"),
    *("#2fb5b5", "#e0457b", "#8a5a34", "#5b6fe0", "#6fae3a"),
)
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right")
GREY = "#8a8f98"
FIXED = (  # the i-th has the i-th hue
    *("cce", "hash", "ce-concat", "dhe", "robe", "pq", "hash-embedding", "tt"),
    *("ce-sum", "ce-mult", "collide", "mixed-dim"),
)


@dataclass(frozen=True)
class Style:
    """How a series is drawn."""

    colour: str
    shape: str


def palette(names: Iterable[str]) -> dict[str, Style]:
    """A style for each name, by its rank: the usual methods have their own hues, whoever else is there."""
    wanted = sorted(set(names))
    styles = {name: _style(place) for place, name in enumerate(FIXED) if name in wanted}
    if "full" in wanted:
        styles["full"] = Style(GREY, "square")
    free = (place for place in count() if place >= len(FIXED) or FIXED[place] not in wanted)
    return styles | {name: _style(next(free)) for name in wanted if name not in styles}


def _style(place: int) -> Style:
    """Thirteen hues and seven shapes: 91 places before a pair comes again."""
    return Style(HUES[place % len(HUES)], SHAPES[place % len(SHAPES)])
