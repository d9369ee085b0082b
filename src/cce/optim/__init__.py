"""Optimizers that touch only the rows a batch used: `SGD`, `RowwiseAdagrad`, `LazyAdam`."""

from cce.optim.lazy_adam import LazyAdam
from cce.optim.pointer_descent import PointerDescent, has_codes
from cce.optim.row_optimizer import RowOptimizer
from cce.optim.rowwise_adagrad import RowwiseAdagrad
from cce.optim.sgd import SGD

__all__ = [
    "SGD",
    "LazyAdam",
    "PointerDescent",
    "RowOptimizer",
    "RowwiseAdagrad",
    "has_codes",
]
