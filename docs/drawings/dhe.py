"""DHE: many hashes of an id, and a small network."""

from __future__ import annotations

from drawings.frame import CHOSEN, Frame, row_label
from drawings.linear import SIDE
from drawings.matrices import CELL, DIM, NUM_IDS, draw_grid, outline
from drawings.svg import BLUE, GREEN, ORANGE, VIOLET, Paint

NUM_HASHES = 2  # and the width of the layers
U = ((0.9, -0.4), (-0.7, 0.3), (0.2, 0.8), (-0.95, -0.6), (0.5, -0.9), (-0.3, 0.65), (0.75, 0.15), (-0.55, -0.2))
SIGN = 26.0


def signed(value: float) -> Paint:
    """Orange above zero, blue below it."""
    return Paint(ORANGE if value > 0 else BLUE, abs(value))


def weight(i: int, j: int, salt: int) -> Paint:
    """Some trained value."""
    return Paint(VIOLET, 0.25 + 0.14 * ((3 * i + 5 * j + salt) % 6))


def draw_layers(frame: Frame) -> None:
    """Four matrices with a curve between them."""
    shapes = ((NUM_HASHES, NUM_HASHES),) * 3 + ((NUM_HASHES, DIM),)
    for layer, (height, width) in enumerate(shapes):
        frame.sign("→", SIGN)
        x, y = frame.place(width * CELL, height * CELL)
        draw_grid(frame.canvas, x, y, [[(weight(i, j, layer),) for j in range(width)] for i in range(height)])
        size = "w × d₂" if layer == 3 else "w × w"
        frame.name((x, y), width * CELL, f"W{'₁₂₃₄'[layer]}", size, height * CELL)
        if layer < 3:
            frame.sign("→", SIGN)
            frame.sign("σ", 14.0)


def draw_dhe() -> str:
    """A dense row of hashes, and the network that makes a vector of it."""
    formula = "T[x] = W₄ σ(W₃ σ(W₂ σ(W₁ u(x))))"
    content = 2 * SIDE + 38 + 4 * 2 * CELL + 7 * SIGN + 3 * 14
    frame = Frame(f"dhe: {formula}", SIDE, content=content)
    x, y = frame.place(SIDE, SIDE)
    cells = [[(Paint(GREEN, 0.2 + 0.15 * ((7 * i + 3 * j + i * j) % 6)),) for j in range(DIM)] for i in range(NUM_IDS)]
    draw_grid(frame.canvas, x, y, cells)
    frame.name((x, y), SIDE, "T", "d₁ × d₂", SIDE)
    outline(frame.canvas, x, y + CHOSEN * CELL, SIDE, CELL)
    row_label(frame.canvas, x, y, CHOSEN)
    frame.sign("=")
    width = NUM_HASHES * CELL
    x, y = frame.place(width, SIDE)
    draw_grid(frame.canvas, x, y, [[(signed(value),) for value in row] for row in U])
    frame.name((x, y), width, "H", "u(x)", SIDE)
    outline(frame.canvas, x, y + CHOSEN * CELL, width, CELL)
    draw_layers(frame)
    caption = "H is dense: w hashes of the id in [−1, 1]. A network, the same for all ids, turns them into a vector."
    return frame.finish((), formula, caption)
