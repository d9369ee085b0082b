"""Torch's optimizers, which move the int8 rows of `cce` tables as well."""

from cce.optim.row_optimizers import SGD, Adagrad, Adam, AdamW
