"""Matrices as grids of cells: where an id finds its rows (H), the rows themselves (M), and what comes out (T).

A cell of T has the colours of the rows it is made of: one colour is a copy, two triangles are a sum, stripes are a
product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drawings.svg import Paint, points

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drawings.svg import Canvas

CELL = 13.0
NUM_IDS = 8  # of every drawing
DIM = 8  # values of a vector

Cells = list[list[tuple[Paint, ...]]]  # rows of cells, each with its colours


@dataclass(frozen=True)
class Row:
    """A row of the codebook, and the columns of T that it serves."""

    paint: Paint
    start: int = 0
    stop: int = DIM


@dataclass(frozen=True)
class Mark:
    """A non-zero of H: the row of M it names, and where it comes from: random, learned or fixed."""

    row: int
    kind: str


Pointers = list[tuple[Mark, ...]]  # the marks of each id


def multiply(h: Pointers, m: Sequence[Row]) -> Cells:
    """T = H · M, in colours: each cell has those of the rows that are added up in it."""
    return [
        [tuple(m[mark.row].paint for mark in marks if m[mark.row].start <= j < m[mark.row].stop) for j in range(DIM)]
        for marks in h
    ]


def cells_of(m: Sequence[Row]) -> Cells:
    """The codebook itself: what lies outside of a row's columns is empty."""
    return [[(row.paint,) if row.start <= j < row.stop else () for j in range(DIM)] for row in m]


def draw_cell(canvas: Canvas, x: float, y: float, paints: tuple[Paint, ...], size: float, *, product: bool) -> None:
    """One cell: plain, two triangles, or stripes."""
    if len(paints) == 2 and not product:
        canvas.path(points((x, y), (x + size, y), (x, y + size)), paints[0])
        canvas.path(points((x + size, y), (x + size, y + size), (x, y + size)), paints[1])
        return
    for i, paint in enumerate(paints):
        width = size / len(paints)
        canvas.rect(x + i * width, y, width, size, paint)


def draw_grid(
    canvas: Canvas, x: float, y: float, cells: Cells, size: float = CELL, *, product: bool = False, bare: bool = False
) -> None:
    """A matrix; the outlines of empty cells are left out if `bare`."""
    for i, row in enumerate(cells):
        for j, paints in enumerate(row):
            draw_cell(canvas, x + j * size, y + i * size, paints, size, product=product)
            if paints or not bare:
                canvas.rect(x + j * size, y + i * size, size, size, "grid")


def draw_mark(canvas: Canvas, x: float, y: float, kind: str, paint: Paint, size: float = CELL) -> None:
    """A circle for random, a diamond for learned, a square for fixed, around a point."""
    seen = f'fill="{paint.hue}" class="mark"'
    radius = size * 0.3
    if kind == "random":
        canvas.shape("circle", seen, cx=x, cy=y, r=radius)
    elif kind == "learned":
        long = radius * 1.35
        canvas.shape("path", f'd="{points((x, y - long), (x + long, y), (x, y + long), (x - long, y))}" {seen}')
    else:
        canvas.shape("rect", seen, x=x - radius, y=y - radius, width=2 * radius, height=2 * radius)


def draw_pointers(canvas: Canvas, x: float, y: float, h: Pointers, m: Sequence[Row], size: float = CELL) -> None:
    """H, with a mark for each non-zero in the colour of the row it names."""
    draw_grid(canvas, x, y, [[()] * len(m) for _ in h], size)
    for i, marks in enumerate(h):
        for mark in marks:
            middle = (x + (mark.row + 0.5) * size, y + (i + 0.5) * size)
            draw_mark(canvas, *middle, mark.kind, m[mark.row].paint, size)


def outline(canvas: Canvas, x: float, y: float, width: float, height: float) -> None:
    """Point out a part of a matrix."""
    canvas.rect(x - 1.5, y - 1.5, width + 3, height + 3, "chosen", radius=3)
