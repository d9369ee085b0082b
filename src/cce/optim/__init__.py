"""Optimizers: torch's own that move int8 rows as well, and those that touch only the rows a batch used."""

from cce.optim.lazy_adam import LazyAdam
from cce.optim.row_optimizer import RowOptimizer
from cce.optim.row_optimizers import SGD, Adagrad, Adam, AdamW
from cce.optim.rowwise_adagrad import RowwiseAdagrad

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "LazyAdam", "RowOptimizer", "RowwiseAdagrad"]
