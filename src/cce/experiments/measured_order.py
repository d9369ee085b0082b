"""Records of sweeps → which series was better than which, by how many times fewer bytes its tables have. No torch here.

The loss of a series between two sizes is interpolated linearly in the logarithm of the size, as in reports. A series is
compared at a size with all others that were measured about there on the same set, and the wins on all sets are added
up: means over sets would compare a series that was run on easy sets with one that was run on hard ones.

`measured_order.json` is what `python -m benchmarks.measured_order` derives from the records in `results/real`.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from dataclasses import asdict, astuple, dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from cce.budget import FULL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cce.records import RunRecord

FILE = "measured_order.json"
METRIC = "bce"
LARGER = 4.0  # a table stands for budgets of at most so many times its bytes, unless it cannot be larger
SMALLER = 1.25  # … and of at least its bytes by this


@dataclass(frozen=True)
class Series:
    """How the runs of a series were made, in options of `cce train`."""

    name: str
    method: str
    method_options: dict[str, Any]
    refits: int
    code_bits: int = 0
    source: str = ""  # method of the run that it starts from, which has to be trained first

    @property
    def is_bounded(self) -> bool:
        """Whether its tables do not grow with the budget: those of codes and refits have 256 rows a column at most."""
        return bool(self.refits or self.code_bits)


@dataclass(frozen=True)
class Point:
    """The runs of a series with tables of one size on one set, or what lies between two such sizes.

    ratio: times fewer bytes than the full tables. excess: mean loss less that of the full tables.
    training: bytes held in training, at most, in bytes of the full tables.
    """

    ratio: float
    excess: float
    training: float
    num_runs: int


@dataclass(frozen=True)
class Standing:
    """A series among the others, at one ratio, over all sets.

    better: in how many comparisons, one for each other series and set, its loss is lower.
    excess: the mean over sets. training: the least and the most of them.
    """

    series: str
    better: int
    comparisons: int
    excess: float
    training: tuple[float, float]
    num_sets: int
    num_runs: int


@dataclass(frozen=True)
class MeasuredOrder:
    """The series, and by set and series what was measured, the largest tables first."""

    series: Mapping[str, Series]
    points: Mapping[str, Mapping[str, Sequence[Point]]]

    def standings(self, ratio: float) -> list[Standing]:
        """The series with tables of `ratio` times fewer bytes than the full ones, the best first."""
        found: dict[str, list[Point]] = defaultdict(list)
        better: dict[str, int] = defaultdict(int)
        comparisons: dict[str, int] = defaultdict(int)
        for measured in self.points.values():
            here = {name: self._at(name, points, ratio) for name, points in measured.items()}
            known = {name: point for name, point in here.items() if point is not None}
            for name, point in known.items():
                found[name].append(point)
                better[name] += sum(point.excess < other.excess for other in known.values())
                comparisons[name] += len(known) - 1
        standings = [_standing(name, better[name], comparisons[name], points) for name, points in found.items()]
        return sorted(standings, key=lambda each: (-each.better / max(each.comparisons, 1), each.excess))

    def _at(self, name: str, points: Sequence[Point], ratio: float) -> Point | None:
        """What a series does at a ratio; None where it was not measured about there."""
        largest, smallest = points[0], points[-1]
        if ratio <= largest.ratio:
            return largest if self.series[name].is_bounded or largest.ratio <= LARGER * ratio else None
        for larger, smaller in pairwise(points):
            if ratio <= smaller.ratio:
                return _between(larger, smaller, ratio)
        return smallest if ratio <= SMALLER * smallest.ratio else None

    def to_json(self) -> str:
        """What `from_json` reads, with a line for each series."""
        series = _json_lines(asdict(each) for each in self.series.values())
        points = _json_lines(
            [name, each, [astuple(point) for point in points]]
            for name, measured in self.points.items()
            for each, points in measured.items()
        )
        return f'{{\n "series": {series},\n "points": {points}\n}}\n'

    @classmethod
    def from_json(cls, text: str) -> MeasuredOrder:
        """The order that `to_json` wrote."""
        values = json.loads(text)
        points: dict[str, dict[str, list[Point]]] = defaultdict(dict)
        for name, series, measured in values["points"]:
            points[name][series] = [Point(*point) for point in measured]
        return cls({each["name"]: Series(**each) for each in values["series"]}, dict(points))


@cache
def read_measured_order() -> MeasuredOrder:
    """The order that comes with the package."""
    return MeasuredOrder.from_json((files("cce.experiments") / FILE).read_text("utf-8"))


def derive_order(sets: Mapping[str, Sequence[RunRecord]]) -> MeasuredOrder:
    """The order by the records of several sets, each of which has runs with full tables."""
    series: dict[str, Series] = {}
    for records in sets.values():
        named = {record.name: record for record in records}
        series |= {record.series: _series(record, named) for record in records if record.method != FULL}
    points = {name: _points(sets[name]) for name in sorted(sets)}
    return MeasuredOrder({name: series[name] for name in sorted(series)}, points)


def _json_lines(values: Iterable[Any]) -> str:
    lines = ",\n".join(f"  {json.dumps(value)}" for value in values)
    return f"[\n{lines}\n ]"


def _series(record: RunRecord, named: Mapping[str, RunRecord]) -> Series:
    options, source = dict(record.config.get("method_options", {})), _source(record, named)
    refits, bits = (record.config.get(name) or 0 for name in ("refits", "code_bits"))
    return Series(record.series, record.method, options, refits, bits, source.method if source is not record else "")


def _source(record: RunRecord, named: Mapping[str, RunRecord]) -> RunRecord:
    """The run that one starts from, if it does, or itself: what was trained."""
    start_from = record.config.get("start_from")
    return record if start_from is None else named[PurePosixPath(start_from).name]


def _points(records: Sequence[RunRecord]) -> dict[str, list[Point]]:
    """The points of every series on one set."""
    full = [record for record in records if record.method == FULL]
    if not full:
        raise ValueError(f"records must have runs of method {FULL!r} to compare with, got {len(records)} without.")
    full_nbytes, named = full[0].nbytes, {record.name: record for record in records}
    groups: dict[tuple[str, int], list[RunRecord]] = defaultdict(list)
    for record in records:
        if record.method != FULL:
            groups[record.series, record.nbytes].append(record)
    points: dict[str, list[Point]] = defaultdict(list)
    for (name, nbytes), runs in sorted(groups.items(), key=lambda group: (group[0][0], -group[0][1])):
        held = _training_nbytes([_source(record, named) for record in runs])
        ratio, excess = _rounded(full_nbytes / nbytes), _rounded(_loss(runs) - _loss(full))
        points[name].append(Point(ratio, excess, _rounded(held / full_nbytes), len(runs)))
    return dict(points)


def _loss(runs: Sequence[RunRecord]) -> float:
    return statistics.fmean(record.scores[METRIC] for record in runs)


def _training_nbytes(runs: Sequence[RunRecord]) -> float:
    held = [record.training_nbytes for record in runs]
    if None in held:
        raise ValueError(f"records must say what tables hold in training, got none in {runs[0].name!r}.")
    return statistics.fmean(each for each in held if each is not None)


def _rounded(number: float) -> float:
    """Four digits, which are those of all machines."""
    return float(f"{number:.4g}")


def _between(larger: Point, smaller: Point, ratio: float) -> Point:
    """The point at a ratio between those of two."""
    share = math.log(ratio / larger.ratio) / math.log(smaller.ratio / larger.ratio)
    excess = larger.excess + share * (smaller.excess - larger.excess)
    training = larger.training * (smaller.training / larger.training) ** share
    return Point(ratio, excess, training, larger.num_runs + smaller.num_runs)


def _standing(name: str, better: int, comparisons: int, points: Sequence[Point]) -> Standing:
    training = [each.training for each in points]
    excess, num_runs = statistics.fmean(each.excess for each in points), sum(each.num_runs for each in points)
    return Standing(name, better, comparisons, excess, (min(training), max(training)), len(points), num_runs)
