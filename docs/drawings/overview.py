"""The picture of the first page: a large table, and the pointers and the codebook that stand for it.

A million ids with 16 values, by CCE with 250 rows in each of 4 learned and 4 helper tables; 10 ids, 8 values and 3 rows
of each table are drawn.
"""

from __future__ import annotations

from drawings.matrices import draw_grid
from drawings.svg import BLUE, GREEN, GREY, ORANGE, YELLOW, Canvas, Paint

WIDTH, HEIGHT = 720.0, 300.0
CELL, TOP = 16.0, 56.0
NUM_ROWS = 250  # of each table
COMPRESSION = 2_000
COLUMNS = (ORANGE, BLUE, GREEN, YELLOW)
POINTERS = (  # rows of ten ids, one in each column
    (0, 2, 1, 2), (1, 0, 2, 0), (0, 1, 1, 2), (2, 2, 0, 1), (1, 0, 2, 1),
    (2, 1, 0, 0), (0, 2, 1, 1), (1, 1, 2, 0), (2, 0, 0, 2), (0, 2, 2, 1),
)  # fmt: skip
STRENGTHS = (0.95, 0.6, 0.28)


def paint(column: int, row: int) -> Paint:
    """The colour of a row of the codebook."""
    return Paint(COLUMNS[column], STRENGTHS[row])


def captions(canvas: Canvas, x: float, title: str, lines: tuple[str, ...]) -> None:
    """The name of a part above it, and its size below."""
    canvas.text(x, TOP - 20, title, "ink strong")
    for i, line in enumerate(lines):
        canvas.text(x, TOP + 10 * CELL + 30 + 19 * i, line, "quiet")


def draw_full(canvas: Canvas, x: float) -> None:
    """The table with a vector for each id."""
    draw_grid(canvas, x, TOP, [[(paint(j // 2, row[j // 2]),) for j in range(8)] for row in POINTERS], CELL)
    canvas.text(x + 4 * CELL, TOP + 10 * CELL + 12, "⋮", "quiet")
    captions(canvas, x + 4 * CELL, "nn.Embedding", ("1,000,000 ids × 16 values", "16,000,000 parameters", "64 MB"))


def draw_pointers(canvas: Canvas, x: float) -> None:
    """Four pointers an id."""
    draw_grid(canvas, x, TOP, [[(paint(column, row[column]),) for column in range(4)] for row in POINTERS], CELL)
    for i, row in enumerate(POINTERS):
        for column, pointer in enumerate(row):
            canvas.text(x + (column + 0.5) * CELL, TOP + (i + 0.5) * CELL + 4, str(pointer), "ink small")
    canvas.text(x + 2 * CELL, TOP + 10 * CELL + 12, "⋮", "quiet")
    captions(canvas, x + 2 * CELL, "learned pointers", ("4 bytes an id", "not trained by gradients", "4.0 MB"))


def draw_codebook(canvas: Canvas, x: float) -> None:
    """Four narrow tables, and their helpers in grey."""
    for column in range(4):
        left = x + column * (2 * CELL + 8)
        draw_grid(canvas, left, TOP + 1.5 * CELL, [[(paint(column, row),)] * 2 for row in range(3)], CELL)
        draw_grid(canvas, left, TOP + 6 * CELL, [[(Paint(GREY, strength),)] * 2 for strength in STRENGTHS], CELL)
    middle = x + 4 * CELL + 12
    canvas.text(middle, TOP + 5.5 * CELL, "+", "ink math sign")
    captions(canvas, middle, "codebook", ("2 × 250 rows × 16 values", "8,000 parameters", "0.03 MB"))


def draw_overview() -> str:
    """From left to right."""
    canvas = Canvas(WIDTH, HEIGHT, "A table of 64 MB becomes pointers of 4 MB and a codebook of 8,000 parameters")
    draw_full(canvas, 60)
    canvas.arrow(226, TOP + 5 * CELL, 326, TOP + 5 * CELL)
    canvas.text(276, TOP + 5 * CELL - 12, "cce.compress(model)", "ink small")
    draw_pointers(canvas, 366)
    canvas.text(466, TOP + 5 * CELL + 7, "·", "ink math sign")
    draw_codebook(canvas, 510)
    return canvas.finish()
