"""The compression factor: how many times fewer parameters (or bytes) a method needs to score as well as the full table.

The paper, "Measuring the Embedding Compression factor": train under several caps, and see at which the loss of the full
table is reached. Between two caps we interpolate linearly in the logarithm of the size, as the paper's plots have a
logarithmic axis. "Some methods never reach baseline BCE within the number of parameters we test. Hence the Compression
Rates we report are based on extrapolations": a line is the optimistic bound and a parabola the pessimistic one, since
such curves tend to be convex. What is called a loss here is any score of which less is better, with a minus otherwise.

A run is compared with the full table of the same seed.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Any

from numpy.polynomial import Polynomial

from cce.text import format_ratio

Point = tuple[float, float]  # a size, and the loss there


class Kind(StrEnum):
    """How a factor is known."""

    MEASURED = "measured"
    AT_LEAST = "at least"  # the smallest size that was tried is good enough
    EXTRAPOLATED = "extrapolated"
    NEVER = "never"
    UNKNOWN = "unknown"  # nothing to compare, or too little


@dataclass(frozen=True)
class Factor:
    """A factor, or a range of them: `low` is None where the pessimistic bound does not meet the baseline at all."""

    kind: Kind
    low: float | None = None
    high: float | None = None
    notes: tuple[str, ...] = ()
    num_seeds: int = 0
    num_reached: int = 0  # of the seeds: those that reach the baseline by themselves

    @property
    def value(self) -> float | None:
        """One number to sort by: the factor itself, or the geometric middle of a range."""
        if self.low is None or self.high is None:
            return self.high
        return math.sqrt(self.low * self.high)

    @property
    def is_reached(self) -> bool:
        """Whether the baseline was reached within the sizes that were tried."""
        return self.kind in (Kind.MEASURED, Kind.AT_LEAST)

    def __str__(self) -> str:
        if self.high is None:
            return "never" if self.kind is Kind.NEVER else "–"
        if self.kind is Kind.AT_LEAST:
            return f"≥ {format_ratio(self.high)}"
        if self.kind is Kind.MEASURED:
            return format_ratio(self.high)
        return f"{format_range(self.low, self.high)} (extrapolated)"


def format_range(low: float | None, high: float) -> str:
    """`127–155×`; without a lower bound, `≤ 155×`; what needs more than the full table is below one."""
    if high < 1:
        return "< 1×"
    if low is None or low < 1:
        return f"≤ {format_ratio(high)}"
    first, last = format_ratio(low), format_ratio(high)
    return last if first == last else f"{first.removesuffix('×')}–{last}"


def compression_factor(curve: Iterable[Point], baseline: float, full_size: float) -> Factor:
    """The factor of one curve of (size, loss): `full_size` over the smallest size whose loss is at most `baseline`."""
    points, notes = clean(curve)
    if not points or not math.isfinite(baseline) or not full_size > 0:
        return Factor(Kind.UNKNOWN, notes=notes)
    index = next((index for index, (_, loss) in enumerate(points) if loss <= baseline), None)
    if index is None:
        return _extrapolated(points, baseline, full_size, notes)
    if any(loss > baseline for _, loss in points[index:]):
        notes = (*notes, "the curve rises above the baseline again; this is where it first reaches it")
    if index == 0:
        factor = full_size / points[0][0]
        return Factor(Kind.AT_LEAST, factor, factor, notes)
    factor = full_size / crossing(points[index - 1], points[index], baseline)
    return Factor(Kind.MEASURED, factor, factor, notes)


def factor_over_seeds(
    curves: Mapping[int, Sequence[Point]], baselines: Mapping[int, float], full_size: float
) -> Factor:
    """The factor of the mean curve over seeds, and how many seeds reach the baseline by themselves.

    baselines: losses of the full table, by seed. A run is compared with that of the same seed, or with their mean if
    its seed has none. At each size differences are averaged.
    """
    known = {seed: loss for seed, loss in baselines.items() if math.isfinite(loss)}
    if not known:
        return Factor(Kind.UNKNOWN, notes=("there is no full table to compare with",), num_seeds=len(curves))
    mean = math.fsum(known.values()) / len(known)
    paired = {seed: [(size, loss - known.get(seed, mean)) for size, loss in curve] for seed, curve in curves.items()}
    differences: dict[float, list[float]] = {}
    for size, difference in chain.from_iterable(paired.values()):
        differences.setdefault(size, []).append(difference)
    means = {size: spread(each) for size, each in differences.items()}
    curve = [(size, math.nan if each is None else each.mean) for size, each in means.items()]
    found = compression_factor(curve, 0.0, full_size)
    num_reached = sum(compression_factor(curve, 0.0, full_size).is_reached for curve in paired.values())
    notes = found.notes
    if unpaired := sorted(set(curves) - set(known)):
        notes = (*notes, f"no full table of seed {', '.join(map(str, unpaired))}: compared with the mean of the others")
    return Factor(found.kind, found.low, found.high, notes, len(paired), num_reached)


def clean(curve: Iterable[Point]) -> tuple[list[Point], tuple[str, ...]]:
    """Points by rising size, the better one of equal sizes, without what is not a number; and a note if any was not."""
    best: dict[float, float] = {}
    num_bad = 0
    for size, loss in curve:
        if math.isfinite(loss) and math.isfinite(size) and size > 0:
            best[size] = min(loss, best.get(size, math.inf))
        else:
            num_bad += 1
    notes = (f"{num_bad} of its points {'is' if num_bad == 1 else 'are'} not a number",) if num_bad else ()
    return sorted(best.items()), notes


def crossing(first: Point, last: Point, baseline: float) -> float:
    """The size at which the line through two points, in (log size, loss), meets the baseline."""
    (size, loss), (next_size, next_loss) = first, last
    share = (loss - baseline) / (loss - next_loss)
    return _exp(math.log(size) + share * (math.log(next_size) - math.log(size)))


def linear_extrapolation(points: Sequence[Point], baseline: float) -> float | None:
    """Where the line through the last two points meets the baseline, beyond them; None if it does not fall."""
    first, last = points[-2:]
    return crossing(first, last, baseline) if last[1] < first[1] else None


def quadratic_extrapolation(points: Sequence[Point], baseline: float) -> float | None:
    """Where the parabola through the last three points first meets the baseline, beyond them; None if it does not."""
    logs, losses = zip(*((math.log(size), loss) for size, loss in points[-3:]), strict=True)
    roots = (Polynomial.fit(logs, losses, 2) - baseline).roots()
    ahead = [float(root.real) for root in roots if root.imag == 0 and root.real > logs[-1]]
    return _exp(min(ahead)) if ahead else None


def _extrapolated(points: list[Point], baseline: float, full_size: float, notes: tuple[str, ...]) -> Factor:
    if len(points) < 2:
        return Factor(Kind.UNKNOWN, notes=(*notes, "not reached, and one size is too few to extrapolate from"))
    line = linear_extrapolation(points, baseline)
    if line is None:
        return Factor(Kind.NEVER, notes=(*notes, "the loss does not fall towards the baseline"))
    bow = quadratic_extrapolation(points, baseline) if len(points) > 2 else None
    if bow is None:
        why = "the parabola does not meet the baseline" if len(points) > 2 else "two sizes: a line, and no parabola"
        return Factor(Kind.EXTRAPOLATED, None, full_size / line, (*notes, why))
    low, high = sorted((full_size / line, full_size / bow))
    return Factor(Kind.EXTRAPOLATED, low, high, notes)


@dataclass(frozen=True)
class Spread:
    """The scores of several seeds in short."""

    count: int
    mean: float
    least: float
    greatest: float


def spread(values: Iterable[float]) -> Spread | None:
    """The spread of the finite `values`; None if there are none."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return None
    least, greatest = min(finite), max(finite)
    mean = math.fsum(finite) / len(finite)
    return Spread(len(finite), min(max(mean, least), greatest), least, greatest)  # rounding may take the mean out


def is_number(value: Any) -> bool:
    """Whether a value of a log or a record is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
