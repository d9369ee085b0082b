"""The metrics by name: what each is called, which way is better, and where its function lives. No torch here.

A metric is a function of `ScoredRows` and one line in `METRICS`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cce.checks import check_known

if TYPE_CHECKING:
    from cce.evaluation.scores import ScoredRows

DEFAULT_METRICS = ("bce", "auc")
RESERVED = ("kind", "step", "epoch")  # what else a line of a log or a curve holds


class Better(StrEnum):
    """Which way is better."""

    LOWER = "lower"
    HIGHER = "higher"
    ONE = "nearer to 1"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class MetricInfo:
    """What a metric is called and how to read it."""

    name: str
    title: str
    better: Better
    home: str = ""  # "module:function"
    about: str = ""

    def score(self, rows: ScoredRows) -> float:
        """The score of rows; NaN where it is not defined."""
        module, _, name = self.home.partition(":")
        return float(getattr(import_module(module), name)(rows))

    def loss(self, score: float) -> float:
        """The score as a number of which less is better; NaN where the metric has no direction."""
        losses = {Better.LOWER: score, Better.HIGHER: -score, Better.ONE: abs(score - 1)}
        return losses.get(self.better, math.nan)

    def format(self, score: float | None, digits: int = 4) -> str:
        """The score with `digits` decimals; a dash if it is missing."""
        return "–" if score is None or math.isnan(score) else f"{score:.{digits}f}"


LOWER, HIGHER, ONE, SCORES = Better.LOWER, Better.HIGHER, Better.ONE, "cce.evaluation.scores"
_ALL = (
    MetricInfo("bce", "BCE", LOWER, f"{SCORES}:binary_cross_entropy", "binary cross-entropy, in nats"),
    MetricInfo("auc", "AUC", HIGHER, f"{SCORES}:area_under_curve", "area under the ROC curve"),
    MetricInfo("normalized_entropy", "NE", LOWER, f"{SCORES}:normalized_entropy", "BCE over that of the mean label"),
    MetricInfo("calibration", "calibration", ONE, f"{SCORES}:calibration", "mean prediction over mean label"),
    MetricInfo("ece", "ECE", LOWER, f"{SCORES}:expected_calibration_error", "expected calibration error, in 15 bins"),
)
METRICS = {info.name: info for info in _ALL}


def list_metrics() -> list[str]:
    return list(METRICS)


def find_metric(name: str) -> MetricInfo:
    """The metric of this name, such as `auc`. Rejects unknown names and suggests the closest match."""
    check_known(f"metric {name!r} is not known", name, METRICS)
    return METRICS[name]


def describe_metric(name: str) -> MetricInfo:
    """Find a metric as `find_metric` does; an unknown name gets itself as title and no direction."""
    try:
        return find_metric(name)
    except ValueError:
        return MetricInfo(name, name, Better.UNKNOWN)


def register_metric(info: MetricInfo) -> None:
    """Add a metric of your own; a name can be given once."""
    if not info.name or info.name in RESERVED:
        raise ValueError(f"name of a metric must be a word, and none of {', '.join(RESERVED)}: {info.name!r}.")
    if info.name in METRICS:
        raise ValueError(f"name of a metric must be new, got {info.name!r}, which there is.")
    METRICS[info.name] = info


def check_metrics(names: Any) -> None:
    """Reject what is no list of different metrics."""
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        raise TypeError(f"metrics must be a list of names, got {names!r}.")
    for name in names:
        find_metric(name)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"metrics must name each metric once, got {twice[0]!r} twice.")


def format_scores(scores: dict[str, float], digits: int = 5) -> str:
    """`BCE 0.45123, AUC 0.78901`."""
    infos = {name: describe_metric(name) for name in scores}
    return ", ".join(f"{infos[name].title} {infos[name].format(score, digits)}" for name, score in scores.items())
