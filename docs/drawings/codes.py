"""Codes first: small integers for each frequent id, clustered column by column, and the pointers that are left."""

from __future__ import annotations

from drawings.svg import BLUE, GREEN, GREY, ORANGE, Canvas, Paint, Station, draw_stations

WIDTH, HEIGHT = 760.0, 330.0
TOP, SIDE = 62.0, 190.0
CODES = (
    (52, 31, -40, 12),
    (-61, 20, -35, 18),
    (47, 38, 70, -22),
    (-58, 15, 66, -30),
    (50, 33, -38, 15),
    (3, -2, 5, -4),
)
COUNTS = (90, 41, 22, 12, 7, 5)  # of the ids; the rare ones share the last row
CLUSTERS = (((0, 2, 4), (1, 3), (5,)), ((0, 1, 4), (2, 3), (5,)))  # of two columns of two values
HUES = (ORANGE, BLUE, GREY)


def centroids(column: int) -> list[tuple[float, float]]:
    """The means of the clusters of a column, weighed by counts."""
    found = []
    for members in CLUSTERS[column]:
        total = sum(COUNTS[index] for index in members)
        x, y = (sum(COUNTS[i] * CODES[i][2 * column + value] for i in members) / total for value in range(2))
        found.append((x, y))
    return found


def nearest(row: tuple[int, ...], column: int) -> int:
    """The centroid that a row points to in a column."""
    x, y = row[2 * column : 2 * column + 2]
    away = [(x - a) ** 2 + (y - b) ** 2 for a, b in centroids(column)]
    return away.index(min(away))


def draw_table(canvas: Canvas, x: float) -> None:
    """Rows of integers, the last of which all rare ids share."""
    for index, row in enumerate(CODES):
        y, is_rare = TOP + 4 + 31 * index, index == len(CODES) - 1
        canvas.text(x + 22, y + 17, "rare" if is_rare else str(index), "quiet small")
        for place, code in enumerate(row):
            strength = 0.12 if is_rare else 0.2 + abs(code) / 160
            canvas.rect(x + 44 + 37 * place, y, 34, 25, Paint(GREY if is_rare else GREEN, strength), radius=3)
            canvas.text(x + 61 + 37 * place, y + 17, str(code).replace("-", "−"), "ink small")


def draw_plane(canvas: Canvas, x: float) -> None:
    """The first column of all ids as points, the larger the more often they occur, and its centroids."""
    canvas.rect(x, TOP, SIDE, SIDE, "panel", radius=6)
    for row, count in zip(CODES, COUNTS, strict=True):
        hue = HUES[nearest(row, 0)]
        canvas.circle(*at(x, row[:2]), 4 + count / 12, Paint(hue, 0.4))
    for centroid, hue in zip(centroids(0), HUES, strict=True):
        canvas.circle(*at(x, centroid), 4, Paint(hue))
        canvas.circle(*at(x, centroid), 4, "chosen")


def at(x: float, code: tuple[float, ...]) -> tuple[float, float]:
    """Where two values are in the plane that begins at `x`."""
    return x + SIDE / 2 + code[0] * 1.2, TOP + SIDE / 2 - code[1] * 1.6


def draw_pointers(canvas: Canvas, x: float) -> None:
    """For each id, the centroid of each column."""
    for column in range(2):
        canvas.text(x + 74 + 76 * column, TOP - 2, f"column {column + 1}", "quiet small")
    for index, row in enumerate(CODES):
        y = TOP + 4 + 31 * index
        canvas.text(x + 22, y + 17, "rare" if index == len(CODES) - 1 else str(index), "quiet small")
        for column in range(2):
            found = nearest(row, column)
            canvas.rect(x + 44 + 76 * column, y, 60, 25, Paint(HUES[found], 0.45), radius=3)
            canvas.text(x + 74 + 76 * column, y + 17, str(found), "ink small")


def draw_codes() -> str:
    """Three pictures from left to right."""
    canvas = Canvas(WIDTH, HEIGHT, "Codes first: integers that train, clusters of them, and pointers to the clusters")
    stations = (
        ("training: a code a value", ("a byte each, moved at every", "step; rare ids share a row"), draw_table),
        ("once: k-means in each column", ("ids weigh as much as", "they occur"), draw_plane),
        ("serving: a pointer a column", ("to rows of small codebooks;", "codes are gone"), draw_pointers),
    )
    return draw_stations(canvas, [Station(*each) for each in stations], top=TOP, side=SIDE)
