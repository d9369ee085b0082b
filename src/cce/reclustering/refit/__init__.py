"""Refit: pointers from the vectors that ids want, fitted on their own rows."""

from cce.reclustering.refit.refit import Refit
from cce.reclustering.refit.rows import Fold, Rows
from cce.reclustering.refit.slopes import cross_entropy

__all__ = ["Fold", "Refit", "Rows", "cross_entropy"]
