"""Quantisation-aware rows: values in floating point, and the whole numbers of steps that a lookup makes of them."""

from __future__ import annotations

from drawings.frame import CHOSEN, Frame, row_label
from drawings.linear import SIDE, SIGN
from drawings.matrices import CELL, DIM, NUM_IDS, draw_grid, outline
from drawings.svg import BLUE, ORANGE, Paint

LARGEST = 7  # of 4 bits
WIDE, TALL = 38.0, 17.0  # a cell with a number in it
ROUND = 84.0  # room for a word
STEPS = [[((37 * i * i + 59 * j + 83 * i * j + 11) % 157 - 78) / 10 for j in range(DIM)] for i in range(NUM_IDS)]


def code(steps: float) -> int:
    """The nearest code."""
    return max(-LARGEST, min(LARGEST, round(steps)))


def paint(steps: float, strength: float) -> Paint:
    """Orange above zero, blue below."""
    return Paint(ORANGE if steps > 0 else BLUE, strength)


def draw_rows(frame: Frame) -> None:
    """The values, in steps."""
    width, height = WIDE * DIM, TALL * NUM_IDS
    x, y = frame.place(width, height)
    for i, row in enumerate(STEPS):
        for j, steps in enumerate(row):
            left, top = x + j * WIDE, y + i * TALL
            frame.canvas.rect(left, top, WIDE, TALL, paint(steps, 0.08 + 0.3 * abs(steps) / LARGEST))
            frame.canvas.rect(left, top, WIDE, TALL, "grid")
            frame.canvas.text(left + WIDE / 2, top + TALL / 2 + 4, f"{steps:.1f}".replace("-", "−"), "ink small")
    frame.name((x, y), width, "M / δ", "float32", height)
    outline(frame.canvas, x, y + CHOSEN * TALL, width, TALL)


def draw_qat() -> str:
    """T, the scale and the rows."""
    formula = "T[x] = δ · round(M[x] / δ)"
    frame = Frame(f"qat: {formula}", TALL * NUM_IDS, content=SIDE + 2 * SIGN + ROUND + WIDE * DIM + 14)
    x, y = frame.place(SIDE, SIDE)
    found = [[code(steps) for steps in row] for row in STEPS]
    shown = [[(paint(c, 0.08 + 0.87 * abs(c) / LARGEST),) if c else () for c in row] for row in found]
    draw_grid(frame.canvas, x, y, shown)
    frame.name((x, y), SIDE, "T", "d₁ × d₂", SIDE)
    outline(frame.canvas, x, y + CHOSEN * CELL, SIDE, CELL)
    row_label(frame.canvas, x, y, CHOSEN)
    frame.sign("=")
    frame.sign("δ", 14.0)
    frame.sign("·")
    frame.sign("round", ROUND)
    draw_rows(frame)
    caption = "Every id has a row in floating point. Lookups round it to codes; gradients pass as if they did not."
    return frame.finish((), formula, caption)
