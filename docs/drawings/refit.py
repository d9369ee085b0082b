"""A refit of one id: its rows, the vector that they want, and the code that costs them the least."""

from __future__ import annotations

import math

from drawings.svg import BLUE, GREEN, GREY, ORANGE, Canvas, Paint, Station, draw_stations, number

WIDTH, HEIGHT = 760.0, 330.0
TOP, SIDE = 62.0, 190.0  # of the pictures
ROWS = ((4, 1, (2.0, 0.5)), (9, 1, (1.6, 0.2)), (2, 0, (-1.4, 0.4)), (4, 0, (1.9, 0.3)), (6, 1, (-1.7, 0.6)))  # slopes
PRESENT = (-0.9, -0.7)
PRECISION = 0.5  # of the prior, whose mean is zero
CODES = ((-1.1, 0.9), (0.2, -1.2), (1.25, 1.15), (0.45, 0.1), (1.5, -0.6), (-0.6, -1.3))
Pair = tuple[float, float]
Matrix = tuple[Pair, Pair]


def parabola() -> tuple[Matrix, Pair]:
    """The curvature of the loss of the rows with the prior at `PRESENT`, and the vector where it is least."""
    a, b, d, gx, gy = PRECISION, 0.0, PRECISION, PRECISION * PRESENT[0], PRECISION * PRESENT[1]
    for _, label, (x, y) in ROWS:
        p = 1 / (1 + math.exp(-(x * PRESENT[0] + y * PRESENT[1])))
        weight, error = p * (1 - p), p - label
        a, b, d = a + weight * x * x, b + weight * x * y, d + weight * y * y
        gx, gy = gx + error * x, gy + error * y
    scale = a * d - b * b
    step = ((d * gx - b * gy) / scale, (a * gy - b * gx) / scale)
    return ((a, b), (b, d)), (PRESENT[0] - step[0], PRESENT[1] - step[1])


def cost(code: Pair, wanted: Pair, curvature: Matrix) -> float:
    """What the loss rises by, if the code is taken instead of the wanted vector."""
    x, y = code[0] - wanted[0], code[1] - wanted[1]
    return (curvature[0][0] * x * x + 2 * curvature[0][1] * x * y + curvature[1][1] * y * y) / 2


def chosen() -> Pair:
    """The code that costs the least."""
    curvature, wanted = parabola()
    return min(CODES, key=lambda code: cost(code, wanted, curvature))


def place(x: float, point: Pair) -> Pair:
    """Where a vector is in the picture that begins at `x`."""
    return x + SIDE / 2 + point[0] * 46, TOP + SIDE / 2 - point[1] * 46


def contour(x: float, wanted: Pair, curvature: Matrix, level: float) -> str:
    """The vectors that cost `level`."""
    corners = []
    for index in range(48):
        way = (math.cos(index * math.pi / 24), math.sin(index * math.pi / 24))
        far = math.sqrt(level / cost((wanted[0] + way[0], wanted[1] + way[1]), wanted, curvature))
        corners.append(place(x, (wanted[0] + far * way[0], wanted[1] + far * way[1])))
    return "M" + "L".join(f"{number(a)} {number(b)}" for a, b in corners) + "Z"


def draw_rows(canvas: Canvas, x: float) -> None:
    """The rows of user 7."""
    for name, at in (("user", 30), ("item", 90), ("click", 150)):
        canvas.text(x + at, TOP + 16, name, "quiet small")
    for index, (item, label, _) in enumerate(ROWS):
        y = TOP + 26 + 32 * index
        canvas.rect(x + 8, y, 44, 24, Paint(ORANGE, 0.35), radius=4)
        canvas.text(x + 30, y + 17, "7")
        canvas.rect(x + 68, y, 44, 24, "grid", radius=4)
        canvas.text(x + 90, y + 17, str(item))
        canvas.circle(x + 150, y + 12, 7, Paint(GREEN if label else GREY, 0.9 if label else 0.35))


def draw_plane(canvas: Canvas, x: float) -> tuple[Matrix, Pair]:
    """Lines of equal loss around the wanted vector."""
    canvas.rect(x, TOP, SIDE, SIDE, "panel", radius=6)
    curvature, wanted = parabola()
    for level in (0.06, 0.24, 0.54):
        canvas.path(contour(x, wanted, curvature, level), "line")
    return curvature, wanted


def draw_wanted(canvas: Canvas, x: float) -> None:
    """From the present vector to the wanted one."""
    _, wanted = draw_plane(canvas, x)
    (ax, ay), (bx, by) = place(x, PRESENT), place(x, wanted)
    canvas.path(f"M{number(ax)} {number(ay)}L{number(bx)} {number(by)}", "line")
    canvas.circle(ax, ay, 5, Paint(GREY))
    canvas.text(ax, ay + 18, "now", "quiet small")
    canvas.circle(bx, by, 5, Paint(ORANGE))


def draw_codes(canvas: Canvas, x: float) -> None:
    """The rows of a codebook, and the one that is taken."""
    _, wanted = draw_plane(canvas, x)
    canvas.circle(*place(x, wanted), 5, Paint(ORANGE))
    for code in CODES:
        canvas.circle(*place(x, code), 5, Paint(BLUE, 0.9 if code == chosen() else 0.4))
    canvas.circle(*place(x, chosen()), 9, "chosen")


def draw_refit() -> str:
    """Three pictures from left to right."""
    canvas = Canvas(WIDTH, HEIGHT, "A refit: the rows of an id, the vector that they want, and the code that it gets")
    stations = (
        ("the rows of an id", ("other tables and the", "network are fixed"), draw_rows),
        ("the vector they want", ("lines of equal loss, with", "a prior learned from all ids"), draw_wanted),
        ("the code it gets", ("the row that costs the least,", "column by column"), draw_codes),
    )
    return draw_stations(canvas, [Station(*each) for each in stations], top=TOP, side=SIDE)
