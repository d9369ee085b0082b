"""Refit: pointers from the vectors that ids want, fitted on their own rows."""

from cce.reclustering.refit.refit import Refit
from cce.reclustering.refit.rows import Fold, RowIndex, Rows

__all__ = ["Fold", "Refit", "RowIndex", "Rows"]
