"""The metrics by name: what each is called, which way is better, and where its accumulator lives. No torch here.

A metric is one file (or one class in a file of its kind) and one line in `METRICS`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cce.evaluation.metric import Metric

DEFAULT_METRICS = ("bce", "auc")
DEFAULT_BEST_BY = "bce"
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
    home: str = ""  # "module:class" of the accumulator
    about: str = ""
    by_group: bool = False  # needs a feature that names the group or query of a row
    takes_k: bool = False  # is named as NAME@K
    k: int | None = None

    def create(self) -> Metric:
        """A fresh accumulator."""
        module, _, name = self.home.partition(":")
        kind = getattr(import_module(module), name)
        made: Metric = kind() if self.k is None else kind(self.k)
        return made

    def loss(self, score: float) -> float:
        """The score as a number of which less is better; NaN where the metric has no direction."""
        losses = {Better.LOWER: score, Better.HIGHER: -score, Better.ONE: abs(score - 1)}
        return losses.get(self.better, math.nan)

    def format(self, score: float | None, digits: int = 4) -> str:
        """The score with `digits` decimals; a dash if it is missing."""
        return "–" if score is None or math.isnan(score) else f"{score:.{digits}f}"


def _own(
    name: str, title: str, better: Better, home: str, about: str, *, by_group: bool = False, takes_k: bool = False
) -> MetricInfo:
    return MetricInfo(name, title, better, f"cce.evaluation.{home}", about, by_group=by_group, takes_k=takes_k)


LOWER, HIGHER, ONE = Better.LOWER, Better.HIGHER, Better.ONE
RANKED = {"by_group": True, "takes_k": True}
_ALL = (
    _own("bce", "BCE", LOWER, "probabilities:BinaryCrossEntropy", "binary cross-entropy, in nats"),
    _own("auc", "AUC", HIGHER, "ranking:AreaUnderCurve", "area under the ROC curve"),
    _own("normalized_entropy", "NE", LOWER, "probabilities:NormalizedEntropy", "BCE over that of the mean label"),
    _own("calibration", "calibration", ONE, "probabilities:Calibration", "mean prediction over mean label"),
    _own("ece", "ECE", LOWER, "probabilities:ExpectedCalibrationError", "expected calibration error, in 15 equal bins"),
    _own("accuracy", "accuracy", HIGHER, "probabilities:Accuracy", "share of rows on the right side of 1/2"),
    _own("grouped_auc", "grouped AUC", HIGHER, "ranking:GroupedAreaUnderCurve", "mean AUC in groups", by_group=True),
    _own("ndcg", "NDCG", HIGHER, "ranking:NormalizedDiscountedGain", "discounted gain of the first k", **RANKED),
    _own("recall", "recall", HIGHER, "ranking:Recall", "share of the positives among the first k", **RANKED),
)
METRICS = {info.name: info for info in _ALL}


def list_metrics() -> list[str]:
    """The names of all metrics; those that take a k as `ndcg@K`."""
    return [f"{info.name}@K" if info.takes_k else info.name for info in METRICS.values()]


def find_metric(name: str) -> MetricInfo:
    """The metric of this name, such as `auc` or `ndcg@10`. Rejects unknown names and suggests the closest match."""
    base, at, text = name.partition("@")
    info = METRICS.get(base)
    if info is None:
        near = difflib.get_close_matches(base, METRICS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"the metrics are {', '.join(list_metrics())}."
        raise ValueError(f"metric {name!r} is not known: {hint}")
    if not info.takes_k:
        if at:
            raise ValueError(f"metric {base!r} takes no k, got {name!r}.")
        return info
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"metric {base!r} needs a k of at least 1, as in '{base}@10', got {name!r}.")
    return replace(info, name=f"{base}@{int(text)}", title=f"{info.title}@{int(text)}", k=int(text))


def describe_metric(name: str) -> MetricInfo:
    """Find a metric as `find_metric` does; an unknown name gets itself as title and no direction."""
    try:
        return find_metric(name)
    except ValueError:
        return MetricInfo(name, name, Better.UNKNOWN)


def register_metric(info: MetricInfo) -> None:
    """Add a metric of your own; a name can be given once."""
    if not info.name or "@" in info.name or info.name in RESERVED:
        raise ValueError(
            f"name of a metric must be a word without @, and none of {', '.join(RESERVED)}: {info.name!r}."
        )
    if info.name in METRICS:
        raise ValueError(f"name of a metric must be new, got {info.name!r}, which there is.")
    METRICS[info.name] = info


def check_metrics(names: Any, *, group_by: str | None = None) -> list[MetricInfo]:
    """The metrics of these names, which must be different; `group_by` must go with a metric that needs it."""
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        raise TypeError(f"metrics must be a list of names, got {names!r}.")
    found = [find_metric(name) for name in names]
    _check_once([info.name for info in found])
    grouped = [info.name for info in found if info.by_group]
    if grouped and group_by is None:
        raise ValueError(f"metric {grouped[0]!r} needs group_by: the feature that names the group or query of a row.")
    if group_by is not None and not grouped:
        needing = ", ".join(name for name in list_metrics() if METRICS[name.partition("@")[0]].by_group)
        raise ValueError(f"group_by needs one of the metrics {needing}, got {', '.join(names)}.")
    return found


def check_best_by(name: str, names: Iterable[str]) -> None:
    """Reject a leading metric that is not among those that are computed."""
    info, chosen = find_metric(name), [find_metric(each).name for each in names]
    if info.name not in chosen:
        raise ValueError(f"best_by must be one of the metrics {', '.join(chosen)}; got {name!r}.")


def format_scores(scores: dict[str, float], digits: int = 5) -> str:
    """`BCE 0.45123, AUC 0.78901`."""
    infos = {name: describe_metric(name) for name in scores}
    return ", ".join(f"{infos[name].title} {infos[name].format(score, digits)}" for name, score in scores.items())


def _check_once(names: Sequence[str]) -> None:
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ValueError(f"metrics must name each metric once, got {twice[0]!r} twice.")
