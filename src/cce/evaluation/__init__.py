"""Logits and labels → scores."""

from cce.evaluation.metrics import auc, binary_cross_entropy

__all__ = ["auc", "binary_cross_entropy"]
