"""Optimizers that touch only the rows a batch used: `SGD`, `RowwiseAdagrad`, `LazyAdam`, and steps during backward."""

from cce.optim.in_backward import InBackward, apply_in_backward
from cce.optim.lazy_adam import LazyAdam
from cce.optim.pointer_descent import PointerDescent, has_codes
from cce.optim.row_optimizer import RowOptimizer
from cce.optim.rowwise_adagrad import RowwiseAdagrad
from cce.optim.sgd import SGD

__all__ = [
    "SGD",
    "InBackward",
    "LazyAdam",
    "PointerDescent",
    "RowOptimizer",
    "RowwiseAdagrad",
    "apply_in_backward",
    "has_codes",
]
