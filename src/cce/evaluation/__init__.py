"""Logits and labels → scores, by metrics that have a name.

Names are loaded when they are first used: metrics can be named and checked without torch.
"""

from typing import TYPE_CHECKING

from cce.lazy import lazy_names

if TYPE_CHECKING:
    from cce.evaluation.registry import (
        DEFAULT_METRICS,
        METRICS,
        Better,
        MetricInfo,
        check_metrics,
        describe_metric,
        find_metric,
        format_scores,
        list_metrics,
        register_metric,
    )
    from cce.evaluation.scores import ScoredRows, check_rows

__getattr__, __dir__ = lazy_names(__name__)
