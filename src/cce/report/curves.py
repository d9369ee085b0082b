"""What happened during training, as rows for charts: validations, clusterings, and what clusterings found."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cce.report.groups import budget_words
from cce.report.statistics import spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cce.report.groups import Group

MOST_POINTS = 60  # of one curve: more cannot be seen
Row = dict[str, Any]


def curve_rows(group: Group) -> list[Row]:
    """The validations of a run of each series and budget, its clusterings, and all runs that are not finished."""
    rows: list[Row] = []
    for run, (series, budget, curve, events, is_live) in enumerate(_runs(group)):
        about = {"series": series, "budget": budget, "run": run, "live": int(is_live)}
        rows += [{**about, **_scores(scores)} for scores in thin(curve) if _is_number(scores.get("bce"))]
        steps = sorted({event["step"] for event in events if "step" in event})
        rows += [{**about, "step": step, "clustered": _words(events, step)} for step in steps]
    return rows


def event_rows(group: Group, name: str) -> list[Row]:
    """A fact of every clustering: its mean, least and greatest over tables."""
    rows: list[Row] = []
    for run, (series, budget, _, events, _) in enumerate(_runs(group)):
        for step in sorted({event["step"] for event in events if "step" in event}):
            found = spread(event[name] for event in events if event.get("step") == step and _is_number(event.get(name)))
            if found is not None:
                facts = {"mean": found.mean, "least": found.least, "greatest": found.greatest}
                rounded = {key: round(value, 5) for key, value in facts.items()}
                rows.append(
                    {"series": series, "budget": budget, "run": run, "step": step, "tables": found.count, **rounded}
                )
    return rows


def thin(points: Sequence[Row]) -> list[Row]:
    """At most `MOST_POINTS` of them, evenly, with the first, the last and the best."""
    if len(points) <= MOST_POINTS:
        return list(points)
    places = {round(place * (len(points) - 1) / (MOST_POINTS - 1)) for place in range(MOST_POINTS)}
    scored = [place for place, point in enumerate(points) if _is_number(point.get("bce"))]
    places |= {min(scored, key=lambda place: points[place]["bce"])} if scored else set()
    return [points[place] for place in sorted(places)]


def _runs(group: Group) -> Iterator[tuple[str, str, list[Row], list[Row], bool]]:
    """Series, budget, validations, clusterings, and whether the run is still under way."""
    for budget in group.budgets:
        yield budget.series, budget.label, budget.first.curve, budget.first.events, False
    for run in group.live:
        method = str(run.config.get("method", "cce"))
        series = run.series or method
        yield series, budget_words(run.config), run.of_kind("validation"), run.of_kind("cluster"), True


def _scores(scores: Row) -> Row:
    digits = {"step": 0, "epoch": 0, "bce": 5, "auc": 5}
    return {name: round(scores[name], digits[name]) for name in digits if _is_number(scores.get(name))}


def _words(events: Sequence[Row], step: int) -> str:
    """`26 tables, churn 0.41`."""
    found = [event for event in events if event.get("step") == step]
    churn = spread(event["churn"] for event in found if _is_number(event.get("churn")))
    tables = f"{len(found)} table{'' if len(found) == 1 else 's'}"
    return tables if churn is None else f"{tables}, churn {churn.mean:.2f}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
