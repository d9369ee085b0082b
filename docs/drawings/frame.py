"""What the drawings of all methods share: positions of matrices, names above and sizes below, legend and caption."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drawings.matrices import CELL, draw_cell, draw_mark
from drawings.svg import BLUE, GREY, ORANGE, Canvas, Paint

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 700.0
TOP = 50.0  # above the matrices: names
FOOT = 104.0  # below them: sizes, legend, formula, caption
CHOSEN = 2  # the id whose row is pointed out

LEGEND = {
    "random": "random hash",
    "learned": "learned pointer",
    "fixed": "by arithmetic",
    "sum": "sum",
    "product": "product",
}


class Frame:
    """A canvas with matrices of `height` around one middle line, placed from left to right."""

    def __init__(self, title: str, height: float, *, content: float) -> None:
        self.canvas = Canvas(WIDTH, TOP + height + FOOT, title)
        self.x = (WIDTH - content) / 2
        self.middle = TOP + height / 2
        self.bottom = TOP + height

    def place(self, width: float, height: float) -> tuple[float, float]:
        """Room for a matrix, to the right of what is there: its upper left corner."""
        corner = (self.x, self.middle - height / 2)
        self.x += width
        return corner

    def sign(self, text: str, width: float = 38.0) -> None:
        """An operator between two matrices."""
        self.canvas.text(self.x + width / 2, self.middle + 7, text, "ink math sign")
        self.x += width

    def name(self, corner: tuple[float, float], width: float, name: str, size: str, height: float) -> None:
        """The name of a matrix above it, and its size below."""
        self.canvas.text(corner[0] + width / 2, corner[1] - 12, name, "ink math")
        self.canvas.text(corner[0] + width / 2, corner[1] + height + 19, size, "quiet small")

    def finish(self, legend: Sequence[str], formula: str, caption: str) -> str:
        """Legend, formula and caption, and the file's text."""
        y = self.canvas.height - 62
        draw_legend(self.canvas, y, legend)
        self.canvas.text(WIDTH / 2, y + 25, formula, "ink math")
        self.canvas.text(WIDTH / 2, y + 47, caption, "quiet")
        return self.canvas.finish()


def draw_legend(canvas: Canvas, y: float, kinds: Sequence[str]) -> None:
    """What marks and cells mean, in one line."""
    widths = [42 + 6.5 * len(LEGEND[kind]) for kind in kinds]
    x = (canvas.width - sum(widths)) / 2
    for kind, width in zip(kinds, widths, strict=True):
        if kind in ("sum", "product"):
            paints = (Paint(ORANGE), Paint(BLUE))
            draw_cell(canvas, x, y - 10, paints, CELL, product=kind == "product")
            canvas.rect(x, y - 10, CELL, CELL, "grid")
        else:
            draw_mark(canvas, x + 6, y - 4, kind, Paint(GREY))
        canvas.text(x + 20, y, LEGEND[kind], "quiet small", anchor="start")
        x += width


def row_label(canvas: Canvas, x: float, y: float, row: int, text: str = "x", size: float = CELL) -> None:
    """The name of an id to the left of its row."""
    canvas.text(x - 8, y + (row + 0.5) * size + 5, text, "ink math", anchor="end")
