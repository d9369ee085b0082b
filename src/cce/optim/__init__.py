"""Optimizers that touch only the rows a batch used: `SGD`, `RowwiseAdagrad`, and steps taken during backward."""

from cce.optim.in_backward import InBackward, apply_in_backward
from cce.optim.rowwise_adagrad import RowwiseAdagrad
from cce.optim.sgd import SGD

__all__ = ["SGD", "InBackward", "RowwiseAdagrad", "apply_in_backward"]
