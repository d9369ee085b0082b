"""A cluster event before and after, for one column of a CCE table: 16 ids, pieces of two values, 4 + 4 rows.

Before it, the piece of an id is a row of M plus a row of the helper M', both at random, and training has moved the
pieces. The event is computed here as in the library: k-means of the pieces, the nearest centroid of each id as its
pointer, centroids as rows, the helper at zero with a new hash function.
"""

from __future__ import annotations

from math import dist

from drawings.matrices import draw_grid, draw_mark
from drawings.svg import BLUE, GREEN, GREY, ORANGE, YELLOW, Canvas, Paint, number

WIDTH, PANEL, HEIGHT = 700.0, 304.0, 190.0
LEFT, GAP, TOP = 24.0, 44.0, 44.0
STRIP = 13.0  # a cell of a strip

Point = tuple[float, float]
M: tuple[Point, ...] = ((-1.05, 0.14), (-0.55, -0.1), (0.5, 0.16), (0.98, -0.16))
HELPER: tuple[Point, ...] = ((-0.1, 0.86), (0.18, 0.44), (-0.2, -0.5), (0.14, -0.88))
HASH = (2, 0, 3, 1, 0, 3, 1, 2, 3, 2, 0, 1, 1, 0, 2, 3)  # the row of M of each id
HELPER_HASH = (0, 2, 1, 3, 0, 3, 1, 2, 2, 1, 3, 0, 2, 1, 3, 0)
NEW_HELPER_HASH = (3, 1, 0, 0, 2, 1, 3, 2, 0, 3, 1, 2, 2, 0, 1, 3)
HUES = (ORANGE, BLUE, GREEN, YELLOW)
CAPTION = (
    "Circles: pieces M[h(x)] + M′[h′(x)] as training left them. Diamonds: centroids, the new rows of M.",
    "The helper M′ restarts at zero with a new hash h′; the number of parameters stays the same.",
)


def pieces() -> list[Point]:
    """What each id has before the event."""
    return [(M[h][0] + HELPER[g][0], M[h][1] + HELPER[g][1]) for h, g in zip(HASH, HELPER_HASH, strict=True)]


def nearest(point: Point, centroids: list[Point]) -> int:
    """The centroid that a point belongs to."""
    return min(range(len(centroids)), key=lambda row: dist(point, centroids[row]))


def mean(members: list[Point]) -> Point:
    """The middle of some points."""
    return sum(x for x, _ in members) / len(members), sum(y for _, y in members) / len(members)


def cluster(points: list[Point], num_iterations: int = 10) -> tuple[list[int], list[Point]]:
    """Lloyd's algorithm from the first four ids: the pointer of each id, and the centroids."""
    centroids = points[: len(M)]
    for _ in range(num_iterations):
        pointers = [nearest(point, centroids) for point in points]
        centroids = [mean([p for p, row in zip(points, pointers, strict=True) if row == k]) for k in range(len(M))]
    return [nearest(point, centroids) for point in points], centroids


class Panel:
    """One half of the drawing: the plane of pieces, and below it what the table stores."""

    def __init__(self, canvas: Canvas, x: float, title: str) -> None:
        self.canvas, self.x = canvas, x
        canvas.text(x + PANEL / 2, TOP - 14, title, "ink strong")
        canvas.rect(x, TOP, PANEL, HEIGHT, "panel", radius=8)

    def at(self, point: Point) -> Point:
        """Where a point of the plane lies."""
        return self.x + PANEL / 2 + 98 * point[0], TOP + HEIGHT / 2 - 72 * point[1]

    def strip(self, y: float, label: str, paints: list[Paint]) -> None:
        """A pointer of each id, in the colour of its row."""
        self.canvas.text(self.x + 14, y + 11, label, "ink math")
        draw_grid(self.canvas, self.x + 30, y, [[(paint,) for paint in paints]], STRIP)

    def table(self, x: float, y: float, label: str, paints: list[Paint | None]) -> None:
        """A small table of four rows of two values; without a paint a row is zero."""
        self.canvas.text(x + STRIP, y - 9, label, "ink math")
        draw_grid(self.canvas, x, y, [[(paint,) if paint else ()] * 2 for paint in paints], STRIP)

    def store(self, pointers: list[int], helper: tuple[int, ...], *, zero: bool) -> None:
        """Pointers, codebook and helper."""
        y = TOP + HEIGHT + 44
        self.canvas.text(self.x + 30 + 8 * STRIP, y - 9, "16 ids", "quiet small")
        self.strip(y, "h", [Paint(HUES[row]) for row in pointers])
        self.strip(y + 3 * STRIP, "h′", [grey(row) for row in helper])
        self.table(self.x + 246, y, "M", [Paint(hue) for hue in HUES])
        self.table(self.x + 278, y, "M′", [None if zero else grey(row) for row in range(4)])


def grey(row: int) -> Paint:
    """The colour of a row of the helper."""
    return Paint(GREY, (0.9, 0.65, 0.42, 0.2)[row])


def draw_before(canvas: Canvas) -> None:
    """Pieces in the colour of the row of M that they share."""
    panel = Panel(canvas, LEFT, "before: rows are shared at random")
    for point, row in zip(pieces(), HASH, strict=True):
        draw_mark(canvas, *panel.at(point), "random", Paint(HUES[row]), 19)
    panel.store(list(HASH), HELPER_HASH, zero=False)


def draw_after(canvas: Canvas) -> None:
    """Every piece has become its centroid."""
    panel = Panel(canvas, LEFT + PANEL + GAP, "after: ids that lie together share a row")
    pointers, centroids = cluster(pieces())
    for point, row in zip(pieces(), pointers, strict=True):
        (x1, y1), (x2, y2) = panel.at(point), panel.at(centroids[row])
        canvas.path(f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}", "grid")
        canvas.circle(x1, y1, 4.5, Paint(HUES[row], 0.35))
    for row, centroid in enumerate(centroids):
        draw_mark(canvas, *panel.at(centroid), "learned", Paint(HUES[row]), 24)
    panel.store(pointers, NEW_HELPER_HASH, zero=True)


def draw_cluster_event() -> str:
    """Both halves, and what happens between them."""
    canvas = Canvas(WIDTH, TOP + HEIGHT + 164, "A cluster event of one CCE column, before and after")
    draw_before(canvas)
    draw_after(canvas)
    middle = LEFT + PANEL + GAP / 2
    canvas.arrow(middle - 15, TOP + HEIGHT / 2, middle + 15, TOP + HEIGHT / 2)
    for i, line in enumerate(CAPTION):
        canvas.text(WIDTH / 2, canvas.height - 34 + 20 * i, line, "quiet")
    return canvas.finish()
