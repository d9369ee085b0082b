"""ROBE: every vector is cut from one circular array."""

from __future__ import annotations

import math
from colorsys import hls_to_rgb

from drawings.frame import CHOSEN, Frame, row_label
from drawings.linear import SIDE
from drawings.matrices import CELL, DIM, NUM_IDS, draw_grid, outline
from drawings.svg import Canvas, Paint, number

SIZE = 32  # values of the array
BLOCK = 2  # values of a block
BLOCKS = DIM // BLOCK  # of a vector
RADII = (52.0, 78.0)  # of the ring
OFFSETS = (  # where each block begins, as a hash function could say: four blocks an id
    (20, 3, 27, 11), (7, 24, 0, 16), (31, 5, 13, 22), (12, 29, 18, 2),
    (25, 9, 6, 30), (15, 1, 21, 10), (28, 19, 4, 14), (8, 23, 26, 17),
)  # fmt: skip


def positions(x: int) -> list[int]:
    """The position of each value of an id's vector in the array."""
    return [(OFFSETS[x][j // BLOCK] + j % BLOCK) % SIZE for j in range(DIM)]


def paint(position: int) -> Paint:
    """Neighbours in the array have neighbouring hues."""
    red, green, blue = (round(255 * part) for part in hls_to_rgb(position / SIZE, 0.52, 0.55))
    return Paint(f"#{red:02x}{green:02x}{blue:02x}", 0.95)


def polar(centre: tuple[float, float], radius: float, position: float) -> str:
    """The point at a position of the ring, from the top, clockwise."""
    angle = 2 * math.pi * position / SIZE - math.pi / 2
    return f"{number(centre[0] + radius * math.cos(angle))} {number(centre[1] + radius * math.sin(angle))}"


def sector(centre: tuple[float, float], radii: tuple[float, float], first: float, last: float) -> str:
    """The outline of a part of the ring."""
    inner, outer = (f"A{number(radius)} {number(radius)} 0 0" for radius in radii)
    near, far = ([polar(centre, radius, position) for position in (first, last)] for radius in radii)
    return f"M{far[0]}{outer} 1 {far[1]}L{near[1]}{inner} 0 {near[0]}Z"


def draw_ring(canvas: Canvas, centre: tuple[float, float]) -> None:
    """The array, and where the blocks of one id lie in it."""
    for position in range(SIZE):
        canvas.path(sector(centre, RADII, position, position + 1), paint(position))
        canvas.path(sector(centre, RADII, position, position + 1), "grid")
    for i, first in enumerate(OFFSETS[CHOSEN]):
        canvas.path(sector(centre, (RADII[0] - 2, RADII[1] + 2), first, first + BLOCK), "chosen")
        x, y = polar(centre, RADII[1] + 15, first + BLOCK / 2).split()
        canvas.text(float(x), float(y) + 4, str(i + 1), "ink small strong")
    canvas.text(centre[0], centre[1] + 1, "M", "ink math")
    canvas.text(centre[0], centre[1] + 18, "n values", "quiet small")


def draw_robe() -> str:
    """A table whose colours come from the ring beside it."""
    formula = "T[x]ᵢ = M[(h(⌊p / Z⌋) + p mod Z) mod n]  with  p = x·d₂ + i"
    height = 2 * RADII[1] + 40
    frame = Frame(f"robe: {formula}", height - 20, content=SIDE + 140 + 2 * RADII[1])
    x, y = frame.place(SIDE, SIDE)
    draw_grid(frame.canvas, x, y, [[(paint(position),) for position in positions(i)] for i in range(NUM_IDS)])
    frame.name((x, y), SIDE, "T", "d₁ × d₂", SIDE)
    row_label(frame.canvas, x, y, CHOSEN)
    for i in range(BLOCKS):
        outline(frame.canvas, x + i * BLOCK * CELL, y + CHOSEN * CELL, BLOCK * CELL, CELL)
    frame.canvas.arrow(x + SIDE + 18, frame.middle, x + SIDE + 112, frame.middle)
    frame.canvas.text(x + SIDE + 64, frame.middle - 10, "a hashed index", "quiet small")
    frame.canvas.text(x + SIDE + 64, frame.middle + 18, "for each block", "quiet small")
    draw_ring(frame.canvas, (x + SIDE + 140 + RADII[1], frame.middle))
    caption = "Each block of Z values lies somewhere in one circular array; blocks may overlap: n parameters."
    return frame.finish(("random",), formula, caption)
