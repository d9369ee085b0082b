"""The journey of a batch: ids, rows, summed vectors, pooling, the model, and gradients back to the codebook."""

from __future__ import annotations

from drawings.matrices import Mark, Row, cells_of, draw_grid, draw_pointers, multiply
from drawings.svg import BLUE, GREEN, ORANGE, YELLOW, Canvas, Paint

WIDTH = 760.0
MIDDLE = 128.0
CELL = 14.0
IDS = (7, 2, 7, 5)
WIDTHS = ((0, 4), (4, 8))  # two columns of four values
CODEBOOK = [
    Row(Paint(hue, strength), *columns)
    for columns, hues in zip(WIDTHS, ((ORANGE, YELLOW), (BLUE, GREEN)), strict=True)
    for hue in hues
    for strength in (0.95, 0.45)
]
POINTERS = {2: (0, 3, 5, 6), 5: (1, 2, 4, 7), 7: (1, 3, 4, 6)}  # a learned and a hashed row in each column


def marks(x: int) -> tuple[Mark, ...]:
    """The rows of one id."""
    return tuple(Mark(row, ("learned", "random")[i % 2]) for i, row in enumerate(POINTERS[x]))


class Journey:
    """Stations from left to right on a middle line, with an arrow between them."""

    def __init__(self, canvas: Canvas, x: float) -> None:
        self.canvas, self.x, self.first = canvas, x, True

    def station(self, width: float, height: float, name: str, notes: tuple[str, ...]) -> tuple[float, float]:
        """Room for a picture: its corner. The name goes above it, notes go below all pictures."""
        if not self.first:
            self.canvas.arrow(self.x + 10, MIDDLE, self.x + 38, MIDDLE)
            self.x += 48
        corner = (self.x, MIDDLE - height / 2)
        self.canvas.text(self.x + width / 2, 38, name, "ink strong")
        for i, note in enumerate(notes):
            self.canvas.text(self.x + width / 2, 212 + 17 * i, note, "quiet small")
        self.x, self.first = self.x + width, False
        return corner

    def box(self, width: float, name: str, text: str, notes: tuple[str, ...]) -> tuple[float, float]:
        """A station that is only a box."""
        x, y = self.station(width, 64, name, notes)
        self.canvas.rect(x, y, width, 64, "panel", radius=8)
        self.canvas.text(x + width / 2, MIDDLE + 5, text, "ink")
        return x, y


def draw_ids(journey: Journey) -> None:
    """A column of numbers."""
    x, y = journey.station(26, len(IDS) * 22, "ids", ("(batch, features)", "checked once"))
    for i, number in enumerate(IDS):
        journey.canvas.rect(x, y + 22 * i, 26, 22, "grid")
        journey.canvas.text(x + 13, y + 22 * i + 16, str(number))


def draw_lookup(journey: Journey) -> tuple[float, float]:
    """H, then M, then vectors; the middle of M's lower edge comes back."""
    canvas, h = journey.canvas, [marks(x) for x in IDS]
    side = 8 * CELL
    notes = ("hash functions,", "digits of the id, or", "learned pointers")
    x, y = journey.station(side, 4 * CELL, "H: which rows", notes)
    draw_pointers(canvas, x, y, h, CODEBOOK, CELL)
    x, y = journey.station(side, side, "M: the codebook", ("rows are gathered", "and summed"))
    draw_grid(canvas, x, y, cells_of(CODEBOOK), CELL, bare=True)
    edge = (x + side / 2, y + side)
    x, y = journey.station(side, 4 * CELL, "vectors", ("(batch, features, d₂)", "bags are pooled here"))
    draw_grid(canvas, x, y, multiply(h, CODEBOOK), CELL)
    return edge


def draw_journey() -> str:
    """Forward above, backward below."""
    canvas = Canvas(WIDTH, 316, "The journey of a batch: ids, rows, vectors, model, and gradients back to the codebook")
    journey = Journey(canvas, 66)
    draw_ids(journey)
    codebook, _ = draw_lookup(journey)
    x, _ = journey.box(78, "your model", "loss", ())
    y, end = 272.0, x + 39
    canvas.path(f"M{end:g} {MIDDLE + 32:g}V{y:g}H{codebook:g}", "line")
    canvas.arrow(codebook, y, codebook, 242)
    canvas.text((codebook + end) / 2, y + 22, "backward: gradients for rows of the codebook; H has none", "quiet")
    return canvas.finish()
