"""Parameters are not bytes: how far each kind of table shrinks, in both measures.

One table of a million ids with 16 values of four bytes. Methods without stored pointers shrink in bytes as they do in
parameters; CCE keeps four pointers an id, of one byte for up to 256 rows, two for up to 65,536, and four beyond.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log10

from drawings.svg import BLUE, GREEN, GREY, ORANGE, Canvas, Paint, number

NUM_IDS, DIM, COLUMNS = 1_000_000, 16, 4
FULL = NUM_IDS * DIM * 4  # bytes
WIDTH, HEIGHT = 740.0, 390.0
BARS, CHART = 60.0, 300.0  # left edges of the two halves
TOP, BOTTOM = 70.0, 290.0


def cce_nbytes(compression: float, num_learned: int = NUM_IDS) -> tuple[float, float]:
    """Bytes of the codebook and of the pointers of a CCE table with so many times fewer parameters."""
    num_params = NUM_IDS * DIM / compression
    num_rows = num_params / (2 * DIM)
    pointer = 1 if num_rows <= 256 else 2 if num_rows <= 65_536 else 4
    return 4 * num_params, num_learned * COLUMNS * pointer


def draw_bar(canvas: Canvas, x: float, name: str, parts: list[tuple[float, Paint]]) -> None:
    """Bytes of one table, from the bottom up, on a linear scale."""
    y = BOTTOM
    for nbytes, paint in parts:
        height = (BOTTOM - TOP) * nbytes / FULL
        y -= height
        canvas.rect(x, y, 34, height, paint)
    total = sum(nbytes for nbytes, _ in parts) / 1e6
    canvas.text(x + 17, y - 8, f"{total:.1f}" if total >= 1 else f"{total:.2f}", "ink small strong")
    canvas.text(x + 17, BOTTOM + 18, name, "ink small")


def draw_bars(canvas: Canvas) -> None:
    """The same number of parameters, in bytes."""
    codebook, pointers = cce_nbytes(100)
    canvas.text(BARS + 82, 34, "MB, at 100× fewer parameters", "ink strong")
    draw_bar(canvas, BARS, "full", [(FULL, Paint(GREY, 0.75))])
    draw_bar(canvas, BARS + 65, "cce", [(codebook, Paint(ORANGE)), (pointers, Paint(ORANGE, 0.45))])
    draw_bar(canvas, BARS + 130, "hash", [(codebook, Paint(BLUE))])
    canvas.path(f"M{BARS - 12:g} {BOTTOM:g}H{BARS + 176:g}", "line")
    canvas.text(BARS + 82, BOTTOM + 38, "upper part of cce: pointers", "quiet")


@dataclass(frozen=True)
class Axes:
    """A chart with logarithmic axes: times fewer parameters to the right, times fewer bytes upwards."""

    x: float = CHART + 50
    width: float = 270.0
    last: float = 4.0  # powers of ten, of both axes

    def at(self, params: float, nbytes: float) -> tuple[float, float]:
        """The position of a pair of factors."""
        return self.x + self.width * log10(params) / self.last, BOTTOM - (BOTTOM - TOP) * log10(nbytes) / self.last

    def draw(self, canvas: Canvas) -> None:
        """Lines and labels at powers of ten."""
        for power in range(int(self.last) + 1):
            x, y = self.at(10**power, 10**power)
            canvas.path(f"M{number(x)} {TOP:g}V{BOTTOM:g}M{self.x:g} {number(y)}H{self.x + self.width:g}", "grid")
            canvas.text(x, BOTTOM + 18, f"{10**power:,}×", "quiet small")
            canvas.text(self.x - 8, y + 4, f"{10**power:,}×", "quiet small", anchor="end")
        canvas.text(self.x + self.width / 2, BOTTOM + 38, "fewer parameters", "quiet")
        canvas.text(self.x + self.width / 2, 34, "Times fewer bytes, by times fewer parameters", "ink strong")

    def curve(self, canvas: Canvas, factors: list[tuple[float, float]], hue: str, dash: str = "none") -> None:
        """A line through pairs of factors."""
        outline = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in (self.at(*pair) for pair in factors))
        canvas.shape("path", f'd="{outline}" fill="none" stroke="{hue}" stroke-width="2.6" stroke-dasharray="{dash}"')


def shrink(num_learned: int) -> list[tuple[float, float]]:
    """Pairs of factors of CCE; where pointers become narrower the curve jumps."""
    steps = [10 ** (i / 40) for i in range(12, 161)]
    return [(factor, FULL / sum(cce_nbytes(factor, num_learned))) for factor in steps]


def draw_curves(canvas: Canvas) -> None:
    """Three kinds of table."""
    axes = Axes()
    axes.draw(canvas)
    axes.curve(canvas, [(1, 1), (10_000, 10_000)], BLUE)
    axes.curve(canvas, shrink(NUM_IDS // 10), GREEN, "7 4")
    axes.curve(canvas, shrink(NUM_IDS), ORANGE)
    right = axes.x + axes.width + 10
    for (_, factor), name in ((shrink(NUM_IDS)[-1], "cce"), (shrink(NUM_IDS // 10)[-1], "cce, pointers of")):
        canvas.text(right, axes.at(1, factor)[1] + 4, name, "ink small", anchor="start")
    canvas.text(right, axes.at(1, shrink(NUM_IDS // 10)[-1][1])[1] + 20, "10 % of the ids", "ink small", anchor="start")
    canvas.text(right, TOP + 4, "hash, ce, robe,", "ink small", anchor="start")
    canvas.text(right, TOP + 20, "dhe, tt", "ink small", anchor="start")


def draw_sizes() -> str:
    """Bars for one budget, and curves over all budgets."""
    canvas = Canvas(WIDTH, HEIGHT, "Parameters are not bytes: learned pointers limit how far a table shrinks in bytes")
    draw_bars(canvas)
    draw_curves(canvas)
    text = "One table: 1,000,000 ids, 16 values in float32. CCE has 4 pointers an id, of 1, 2 or 4 bytes."
    canvas.text(WIDTH / 2, HEIGHT - 20, text, "quiet")
    return canvas.finish()
