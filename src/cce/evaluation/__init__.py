"""Logits and labels → scores, by metrics that have a name.

Names that need torch are loaded when they are first used: metrics can be named and checked without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cce.evaluation.registry import (
    DEFAULT_BEST_BY,
    DEFAULT_METRICS,
    METRICS,
    Better,
    MetricInfo,
    check_best_by,
    check_metrics,
    describe_metric,
    find_metric,
    format_scores,
    list_metrics,
    register_metric,
)

if TYPE_CHECKING:
    from cce.evaluation.calibration import ExpectedCalibrationError
    from cce.evaluation.cross_entropy import binary_cross_entropy
    from cce.evaluation.metric import Metric, SummedMetric, WholeMetric
    from cce.evaluation.roc import auc
    from cce.evaluation.rows import ScoredRows, check_rows

__all__ = [
    "DEFAULT_BEST_BY",
    "DEFAULT_METRICS",
    "METRICS",
    "Better",
    "ExpectedCalibrationError",
    "Metric",
    "MetricInfo",
    "ScoredRows",
    "SummedMetric",
    "WholeMetric",
    "auc",
    "binary_cross_entropy",
    "check_best_by",
    "check_metrics",
    "check_rows",
    "describe_metric",
    "find_metric",
    "format_scores",
    "list_metrics",
    "register_metric",
]

_HOMES = {
    "ExpectedCalibrationError": "calibration",
    "Metric": "metric",
    "ScoredRows": "rows",
    "SummedMetric": "metric",
    "WholeMetric": "metric",
    "auc": "roc",
    "binary_cross_entropy": "cross_entropy",
    "check_rows": "rows",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cce.evaluation' has no attribute {name!r}")
    return getattr(import_module(f"cce.evaluation.{_HOMES[name]}"), name)
