"""Quantised rows: small integers times a scale. Frequent ids have a row of their own, rare ids share."""

from __future__ import annotations

from drawings.frame import CHOSEN, Frame, row_label
from drawings.linear import SIDE, SIGN
from drawings.matrices import CELL, DIM, NUM_IDS, draw_grid, draw_mark, outline
from drawings.svg import BLUE, GREY, ORANGE, Paint

NUM_LEARNED = 6  # ids with a row of their own; the other two share one
LARGEST = 127
WIDE, TALL = 34.0, 17.0  # a cell with a number in it
ROWS = [min(x, NUM_LEARNED) for x in range(NUM_IDS)]
CODES = [[(37 * i * i + 59 * j + 83 * i * j + 11) % (2 * LARGEST + 1) - LARGEST for j in range(DIM)] for i in range(7)]


def paint(code: int) -> Paint:
    """Orange above zero, blue below; the larger the stronger."""
    return Paint(ORANGE if code > 0 else BLUE, 0.08 + 0.87 * abs(code) / LARGEST)


def draw_h(frame: Frame) -> None:
    """Own rows by arithmetic, and a shared one by hash."""
    width = CELL * len(CODES)
    x, y = frame.place(width, SIDE)
    draw_grid(frame.canvas, x, y, [[()] * len(CODES) for _ in ROWS])
    for i, row in enumerate(ROWS):
        kind = "fixed" if i < NUM_LEARNED else "random"
        draw_mark(frame.canvas, x + (row + 0.5) * CELL, y + (i + 0.5) * CELL, kind, Paint(GREY))
    frame.name((x, y), width, "H", "a 1 in each row", SIDE)
    outline(frame.canvas, x, y + CHOSEN * CELL, width, CELL)


def draw_codes(frame: Frame) -> None:
    """The integers themselves."""
    width, height = WIDE * DIM, TALL * len(CODES)
    x, y = frame.place(width, height)
    for i, row in enumerate(CODES):
        for j, code in enumerate(row):
            left, top = x + j * WIDE, y + i * TALL
            frame.canvas.rect(left, top, WIDE, TALL, Paint(paint(code).hue, 0.16))
            frame.canvas.rect(left, top, WIDE, TALL, "grid")
            frame.canvas.text(left + WIDE / 2, top + TALL / 2 + 4, str(code).replace("-", "−"), "ink small")
    frame.name((x, y), width, "codes", "8 or 16 bits each", height)
    outline(frame.canvas, x, y + ROWS[CHOSEN] * TALL, width, TALL)


def draw_quantized() -> str:
    """T, the scale, H and the codes."""
    formula = "T[x] = δ · codes[r(x)]"
    frame = Frame(
        f"quantized: {formula}", TALL * len(CODES), content=SIDE + 3 * SIGN + CELL * len(CODES) + WIDE * DIM + 14
    )
    x, y = frame.place(SIDE, SIDE)
    draw_grid(frame.canvas, x, y, [[(paint(code),) for code in CODES[row]] for row in ROWS])
    frame.name((x, y), SIDE, "T", "d₁ × d₂", SIDE)
    outline(frame.canvas, x, y + CHOSEN * CELL, SIDE, CELL)
    row_label(frame.canvas, x, y, CHOSEN)
    frame.sign("=")
    frame.sign("δ", 14.0)
    frame.sign("·")
    draw_h(frame)
    frame.sign("·")
    draw_codes(frame)
    caption = "Rows of small integers, trained as they are. Frequent ids have their own, rare ids share some."
    return frame.finish(("fixed", "random"), formula, caption)
