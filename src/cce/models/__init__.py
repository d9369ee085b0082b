"""Recommendation models: vectors of all features in, logits out."""

from cce.models.gmf import GMF

__all__ = ["GMF"]
