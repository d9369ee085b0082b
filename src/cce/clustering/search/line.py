"""Points of one dimension: no tree and no boxes; sorted points meet sorted centroids.

The squared distances of a point to sorted centroids fall up to the point and rise behind it, rounding included, since
the difference and its square both round monotonically. So one of the two centroids that it lies between is the nearest,
or has the same square as the nearest: squares that rounding makes equal lie side by side, and the lowest index of them
is the nearest, as the definition has it (`search.plain`). Of the points between two centroids the first ones, in rising
order, are nearer to the lower centroid, and bisection finds where they end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cce.compiled import compile_loops

if TYPE_CHECKING:
    import numpy.typing as npt

    from cce.clustering.search.distances import Floats, Ints, Longs

    Doubles = npt.NDArray[np.float64]

CELLS_IN_MIDDLE = 4  # cells for each middle between two centroids: most have none or one
CLEAR = 2.0**-20  # of the distance of a point: centroids so far apart have different squares, which err by 2**-22
CLEAR_OF_ZERO = 1e-15  # … and so far apart that no square underflows


class SortedPoints(NamedTuple):
    """Points in rising order."""

    values: Floats  # (n,)
    weights: Floats  # (n,)


class SortedCenters(NamedTuple):
    """Different centroids in rising order."""

    values: Floats  # (m,) m <= k
    ids: Ints  # (m,) the lowest index of each


class Middles(NamedTuple):
    """The middles between neighbours, in cells of equal width."""

    values: Doubles  # (m - 1,)
    starts: Ints  # (num_cells + 1,) the first middle of each cell
    low: float
    scale: float


class Assignment(NamedTuple):
    """What is written of each point, and of each cluster."""

    nearest: Ints  # (n,)
    squares: Floats  # (n,)
    sums: Doubles  # (k, 3) weighted values, weights and weighted squares


def sort_centers(centers: Floats) -> SortedCenters:
    """Sort `(k,)` centroids; of equal ones the first stays."""
    values, ids = np.unique(centers, return_index=True)
    return SortedCenters(values, ids.astype(np.int32))


def find_middles(centers: SortedCenters) -> Middles:
    """Return the middles of sorted centroids."""
    values = (centers.values[1:].astype(np.float64) + centers.values[:-1]) / 2
    if not len(values):
        return Middles(values, np.zeros(2, np.int32), 0.0, 0.0)
    num_cells, width = CELLS_IN_MIDDLE * len(values), float(values[-1] - values[0])
    low, scale = float(values[0]), num_cells / width if width > 0 else 0.0
    cells = np.clip((values - low) * scale, 0, num_cells - 1).astype(np.int64)
    return Middles(values, np.searchsorted(cells, np.arange(num_cells + 1)).astype(np.int32), low, scale)


@compile_loops
def first_not_below(values: Floats | Doubles, begin: int, end: int, value: np.float32) -> int:
    """Return the first of the rising values `[begin, end)` that is not below a value; `end` if all are."""
    first, last = begin, end
    while first < last:
        middle = (first + last) >> 1
        if values[middle] < value:
            first = middle + 1
        else:
            last = middle
    return first


@compile_loops
def square_to(value: np.float32, center: np.float32) -> np.float32:
    """Return the squared distance of a value: the definition."""
    difference = value - center
    return difference * difference


@compile_loops
def settle(value: np.float32, place: int, centers: SortedCenters) -> tuple[np.int32, np.float32]:
    """Return the nearest centroid of a value, and its square; those before `place` are below the value, others not."""
    values, num_centers = centers.values, len(centers.values)
    square = np.float32(np.inf)
    if place > 0:
        square = square_to(value, values[place - 1])
    if place < num_centers:
        square = min(square, square_to(value, values[place]))
    nearest = np.int32(0x7FFFFFFF)
    lower, upper = place - 1, place
    while lower >= 0 and square_to(value, values[lower]) == square:
        nearest = min(nearest, centers.ids[lower])
        lower -= 1
    while upper < num_centers and square_to(value, values[upper]) == square:
        nearest = min(nearest, centers.ids[upper])
        upper += 1
    return nearest, square


@compile_loops
def search_any(values: Floats, centers: SortedCenters, middles: Middles, begin: int, end: int, nearest: Longs) -> None:
    """Search the values `[begin, end)`, which are in any order."""
    rising, last, last_cell = centers.values, len(centers.values) - 1, len(middles.starts) - 2
    for row in range(begin, end):
        value = values[row]
        cell = int(min(max((value - middles.low) * middles.scale, 0.0), float(last_cell)))
        own = first_not_below(middles.values, middles.starts[cell], middles.starts[cell + 1], value)
        square = square_to(value, rising[own])
        is_clear = own == 0 or square < square_to(value, rising[own - 1])
        if is_clear and (own == last or square < square_to(value, rising[own + 1])):
            nearest[row] = centers.ids[own]
        else:
            nearest[row], _ = settle(value, own + int(rising[own] < value), centers)


@compile_loops
def search_sorted(points: SortedPoints, centers: SortedCenters, begin: int, end: int, found: Assignment) -> None:
    """Search the points `[begin, end)`, and add them to the sums of their clusters: between two centroids at a time."""
    rising = centers.values
    place, row = first_not_below(rising, 0, len(rising), points.values[begin]), begin
    while row < end:
        stop = end
        if place < len(rising):
            stop = first_not_below(points.values, row, end, np.nextafter(rising[place], np.float32(np.inf)))
        tied, upper = split_between(points.values, centers, place, row, stop)
        add_run(points, centers, place, place - 1, row, tied, found)
        add_each(points, centers, place, tied, upper, found)
        add_run(points, centers, place, place, upper, stop, found)
        row, place = stop, place + 1


@compile_loops
def split_between(values: Floats, centers: SortedCenters, place: int, begin: int, end: int) -> tuple[int, int]:
    """Return where values between two centroids begin to be as near to the upper as to the lower, and to be nearer.

    Squares to the lower centroid rise, and those to the upper, `place`, fall.
    """
    if place == 0:
        return begin, begin
    if place == len(centers.values):
        return end, end
    low, high = centers.values[place - 1], centers.values[place]
    first, last = begin, end
    while first < last:
        middle = (first + last) >> 1
        if square_to(values[middle], low) < square_to(values[middle], high):
            first = middle + 1
        else:
            last = middle
    tied = first
    while first < end and square_to(values[first], low) == square_to(values[first], high):
        first += 1
    return tied, first


@compile_loops
def add_run(
    points: SortedPoints, centers: SortedCenters, place: int, own: int, begin: int, end: int, found: Assignment
) -> None:
    """Give `[begin, end)` to the centroid `own`, unless rounding may make the square of its other neighbour equal."""
    if begin >= end:
        return
    values, center, other = points.values, centers.values[own], own - 1 if own < place else own + 1
    if 0 <= other < len(centers.values):
        apart = abs(float(centers.values[other]) - center)
        reach = max(abs(float(values[begin]) - center), abs(float(values[end - 1]) - center))
        if apart <= max(CLEAR * reach, CLEAR_OF_ZERO):
            add_each(points, centers, place, begin, end, found)
            return
    nearest = centers.ids[own]
    for row in range(np.uint64(begin), np.uint64(end)):
        found.nearest[row] = nearest
        found.squares[row] = square_to(values[row], center)
    add_sums(points, nearest, begin, end, found)


@compile_loops
def add_sums(points: SortedPoints, nearest: np.int32, begin: int, end: int, found: Assignment) -> None:
    """Add `[begin, end)` to the sums of one cluster."""
    of_values, of_weights, of_squares = 0.0, 0.0, 0.0
    for row in range(np.uint64(begin), np.uint64(end)):
        weight = np.float64(points.weights[row])
        of_values += weight * points.values[row]
        of_weights += weight
        of_squares += weight * found.squares[row]
    found.sums[nearest, 0] += of_values
    found.sums[nearest, 1] += of_weights
    found.sums[nearest, 2] += of_squares


@compile_loops
def add_each(points: SortedPoints, centers: SortedCenters, place: int, begin: int, end: int, found: Assignment) -> None:
    """Settle the points `[begin, end)` one by one."""
    for row in range(begin, end):
        value, weight = points.values[row], np.float64(points.weights[row])
        nearest, square = settle(value, place, centers)
        found.nearest[row], found.squares[row] = nearest, square
        found.sums[nearest, 0] += weight * value
        found.sums[nearest, 1] += weight
        found.sums[nearest, 2] += weight * square
