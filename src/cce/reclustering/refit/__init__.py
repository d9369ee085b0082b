"""Refit: pointers from the vectors that ids want, fitted on their own rows."""

from cce.reclustering.refit.batches import BatchRows
from cce.reclustering.refit.refit import Refit
from cce.reclustering.refit.rows import Fold, Rows, cross_entropy
from cce.reclustering.refit.step import RefitEvent

__all__ = ["BatchRows", "Fold", "Refit", "RefitEvent", "Rows", "cross_entropy"]
