"""A canvas for small SVG drawings, readable on a light and on a dark page.

Ground, text and lines take their colours from the reader's preference; hues are the middle tones of the charts of `cce
report`, which show on both. Numbers have two decimals, so that a drawing is the same bytes on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ORANGE, BLUE, GREEN, PINK = "#d55e00", "#2a7fc1", "#009e73", "#cc79a7"
YELLOW, SKY, VIOLET, OLIVE = "#e69f00", "#56b4e9", "#9a6fc4", "#8f8f2f"
HUES = (ORANGE, BLUE, GREEN, YELLOW, VIOLET, SKY, PINK, OLIVE)
GREY = "#8a8f98"

STYLE = """
.ground { fill: #ffffff; }
.ink { fill: #1b1f24; }
.quiet { fill: #5b6470; }
.grid { fill: none; stroke: #c9ced6; stroke-width: 0.8; }
.line { fill: none; stroke: #7a828d; stroke-width: 1.4; }
.mark { stroke: #1b1f24; stroke-width: 0.7; }
.chosen { fill: none; stroke: #1b1f24; stroke-width: 1.7; }
.panel { fill: #f3f5f8; }
.tip { fill: #7a828d; }
text { font: 13px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
.math { font: italic 16px "STIX Two Text", Cambria, Georgia, "Times New Roman", serif; }
.sign { font-size: 22px; font-style: normal; }
.small { font-size: 11.5px; }
.strong { font-weight: 600; }
@media (prefers-color-scheme: dark) {
  .ground { fill: #14171c; }
  .ink { fill: #e8eaed; }
  .quiet { fill: #a3acb8; }
  .grid { stroke: #3d4550; }
  .line { stroke: #8f98a5; }
  .mark { stroke: #e8eaed; }
  .chosen { stroke: #e8eaed; }
  .panel { fill: #1e232b; }
  .tip { fill: #8f98a5; }
}
"""


@dataclass(frozen=True)
class Paint:
    """A hue, and how strongly it covers the ground."""

    hue: str
    strength: float = 0.9

    @property
    def attributes(self) -> str:
        """As attributes of a shape."""
        return f'fill="{self.hue}" fill-opacity="{number(self.strength)}"'


def number(value: float) -> str:
    """At most two decimals, and no trailing zeros."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def points(*corners: tuple[float, float]) -> str:
    """The outline of a polygon."""
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in corners) + "Z"


@dataclass
class Canvas:
    """Shapes on a ground of `width` times `height`."""

    width: float
    height: float
    title: str
    shapes: list[str] = field(default_factory=list)

    def shape(self, name: str, attributes: str = "", content: str | None = None, **numbers: float) -> None:
        """Add an element; an underscore in the name of a number is a hyphen."""
        placed = "".join(f' {key.replace("_", "-")}="{number(value)}"' for key, value in numbers.items())
        body = "/>" if content is None else f">{content}</{name}>"
        self.shapes.append(f"<{name}{placed} {attributes}".rstrip() + body)

    def rect(self, x: float, y: float, width: float, height: float, look: str | Paint, radius: float = 0) -> None:
        """A rectangle; `look` is a class or a paint."""
        self.shape("rect", attributes(look), x=x, y=y, width=width, height=height, rx=radius)

    def circle(self, x: float, y: float, radius: float, look: str | Paint) -> None:
        """A circle around a point."""
        self.shape("circle", attributes(look), cx=x, cy=y, r=radius)

    def path(self, outline: str, look: str | Paint) -> None:
        """Any outline."""
        self.shape("path", f'd="{outline}" {attributes(look)}')

    def text(self, x: float, y: float, content: str, look: str = "ink", anchor: str = "middle") -> None:
        """A line of text, with its baseline at `y`."""
        self.shape("text", f'class="{look}" text-anchor="{anchor}"', escape(content, quote=False), x=x, y=y)

    def arrow(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """A straight arrow along an axis."""
        self.path(f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}", "line")
        length = abs(x2 - x1) + abs(y2 - y1)
        dx, dy = (x2 - x1) / length, (y2 - y1) / length
        left = (x2 - 7 * dx + 4 * dy, y2 - 7 * dy + 4 * dx)
        right = (x2 - 7 * dx - 4 * dy, y2 - 7 * dy - 4 * dx)
        self.path(points((x2, y2), left, right), "tip")

    def finish(self) -> str:
        """The file's text."""
        size = f'width="{number(self.width)}" height="{number(self.height)}"'
        view = f'viewBox="0 0 {number(self.width)} {number(self.height)}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} role="img">'
        ground = f'<rect {size} class="ground" rx="10"/>'
        title = f"<title>{escape(self.title, quote=False)}</title>"
        return "\n".join([head, title, f"<style>{STYLE}</style>", ground, *self.shapes, "</svg>"]) + "\n"


def attributes(look: str | Paint) -> str:
    """A class, or a paint."""
    return f'class="{look}"' if isinstance(look, str) else look.attributes


@dataclass(frozen=True)
class Station:
    """One of several pictures in a row: its title, the lines below it, and what draws it at a place."""

    title: str
    notes: tuple[str, ...]
    draw: Callable[[Canvas, float], object]


def draw_stations(canvas: Canvas, stations: Sequence[Station], *, top: float, side: float) -> str:
    """Pictures from left to right, with an arrow from each to the next; the file's text."""
    for index, station in enumerate(stations):
        x = 40 + 245 * index
        canvas.text(x + side / 2, 38, station.title, "ink strong")
        station.draw(canvas, x)
        for line, note in enumerate(station.notes):
            canvas.text(x + side / 2, top + side + 24 + 17 * line, note, "quiet small")
        if index:
            canvas.arrow(x - 46, top + side / 2, x - 10, top + side / 2)
    return canvas.finish()
