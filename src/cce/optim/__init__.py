"""Optimizers that touch only the rows a batch used: `SGD`, `RowwiseAdagrad`, `LazyAdam`, and steps during backward."""

from cce.optim.in_backward import InBackward, apply_in_backward
from cce.optim.lazy_adam import LazyAdam
from cce.optim.row_optimizer import RowOptimizer
from cce.optim.rowwise_adagrad import RowwiseAdagrad
from cce.optim.sgd import SGD

__all__ = ["SGD", "InBackward", "LazyAdam", "RowOptimizer", "RowwiseAdagrad", "apply_in_backward"]
