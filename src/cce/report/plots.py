"""The charts of a section, which the page and the pictures are both drawn from: scores, training, clusterings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cce.report.curves import curve_rows, event_rows
from cce.report.factor_plot import factor_plot
from cce.report.specs import (
    STEPS,
    Plot,
    band,
    bright,
    by_budget,
    colours,
    dots,
    layered,
    level,
    line,
    log_sizes,
    near,
    number,
    tip,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cce.report.groups import Budget, Group
    from cce.report.palette import Style
    from cce.report.specs import Spec

UNITS = {"params": "", "bytes": "B"}
OVER_SEEDS = "Mean over seeds; the band goes from the least to the greatest."
OVER_TABLES = "Mean over tables; the band goes from the least to the greatest."
FACTS = {  # of a clustering
    "churn": ("Churn", "share of ids", "The share of ids whose pointers changed."),
    "H1": ("Entropy H1", "nats", "Of single columns of pointers: low if few rows are used."),
    "H2": ("Entropy H2", "nats", "Of pairs of columns: near H1 if columns say the same, which is table collapse."),
}


def plots_of(group: Group, styles: Mapping[str, Style], expected: Mapping[str, Any]) -> list[Plot]:
    """The charts of a group; those that would be empty are left out."""
    scores = [score_plot(group, styles, score, size) for score in ("bce", "auc") for size in UNITS]
    events = [event_plot(group, styles, name) for name in FACTS]
    plots = [factor_plot(group, styles, expected), *scores, curve_plot(group, styles), *events]
    return [plot for plot in plots if plot.spec["data"]["values"]]


def score_plot(group: Group, styles: Mapping[str, Style], score: str, size: str) -> Plot:
    """A score against a size: a line for each series, the band from least to greatest, the full table dashed."""
    rows = [row for budget in group.budgets for row in _score_rows(budget, score, size)]
    y = near("mean", f"test {score.upper()}")
    tips = ("series", "budget", size, "mean", "least", "greatest", "seeds")
    full = group.baseline.over_seeds(score) if group.baseline else None
    layers = level(full.mean, f"full table {full.mean:.4f}") if full else []  # below the points, which are pointed at
    layers += [band(y, "area", 0.2), band(y, "rule", 0.6), line(y), dots(y, styles, tips)]
    x = number("size", f"{size} of all tables", **log_sizes(rows, ("size",), UNITS[size]))
    spec = layered(rows, {"x": x, "color": colours(styles, rows)}, layers)
    return Plot(f"{score}-{size}", f"{score.upper()} against {size}", spec, OVER_SEEDS)


def _score_rows(budget: Budget, score: str, size: str) -> list[dict[str, Any]]:
    """One row; none without a score, or without a size, which a logarithmic axis has no place for."""
    found = budget.over_seeds(score)
    if found is None or not budget.size(size):
        return []
    scores = {"mean": found.mean, "least": found.least, "greatest": found.greatest}
    row = {"series": budget.series, "budget": budget.label, "size": budget.size(size), "seeds": found.count}
    return [row | {name: round(value, 6) for name, value in scores.items()}]


def curve_plot(group: Group, styles: Mapping[str, Style]) -> Plot:
    """Validations of one run of each series under the chosen budget; its clusterings are marked."""
    rows = curve_rows(group)
    y = near("bce", "validation BCE")
    scale = {"domain": [0, 1], "range": [[1, 0], [6, 3]]}
    dashes = {"field": "live", "type": "nominal", "legend": None, "scale": scale}
    run = {"field": "run", "type": "nominal"}
    scored = [{"filter": "isValid(datum.bce)"}]
    layers = [
        _marks(),
        line(y, detail=run, strokeDash=dashes) | {"transform": scored},
        dots(y, styles, ("series", "budget", "step", "epoch", "bce", "auc"), size=30) | {"transform": scored},
    ]
    last = max(
        (row["step"] for row in rows), default=1
    )  # of all budgets, so that the axis stays when another is chosen
    x = number("step", "step", axis=STEPS, scale={"domain": [0, last]})
    shared = {"x": x, "color": colours(styles, rows)}
    about = "One run of each series, that of the lowest seed. Dotted: clusterings. Dashed: runs that are not finished."
    return Plot("curves", "Training curves", by_budget(layered(rows, shared, layers)), about, has_budgets=True)


def _marks() -> Spec:
    """A dotted rule at each clustering."""
    tips = [tip(name) for name in ("series", "budget", "step", "clustered")]
    mark = {"type": "rule", "strokeDash": [2, 3], "strokeWidth": 1.5}
    encoding = {"tooltip": tips, "opacity": bright(0.7)}
    return {"transform": [{"filter": "isValid(datum.clustered)"}], "mark": mark, "encoding": encoding}


def event_plot(group: Group, styles: Mapping[str, Style], name: str) -> Plot:
    """A fact of every clustering: the mean over tables, and the band from the least to the greatest."""
    title, unit, about = FACTS[name]
    rows = event_rows(group, name)
    y = near("mean", unit)
    tips = ("series", "budget", "step", "mean", "least", "greatest", "tables")
    layers = [band(y, "area", 0.15), line(y), dots(y, styles, tips)]
    shared = {"x": number("step", "step", axis=STEPS), "color": colours(styles, rows)}
    spec = by_budget(layered(rows, shared, layers)) | {"height": 200}
    return Plot(name.lower(), title, spec, f"{about} {OVER_TABLES}", has_budgets=True)
