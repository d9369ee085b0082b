"""Logits and labels → scores."""

from cce.evaluation.metrics import auc, binary_cross_entropy
from cce.evaluation.streaming import StreamingScores

__all__ = ["StreamingScores", "auc", "binary_cross_entropy"]
