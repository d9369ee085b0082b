"""The primitive that multiplies by M: rows of the codebook in, summed vectors out."""

from cce.kernels.cpu import (
    Bags,
    CodeRows,
    LaunchPlan,
    bind_int8,
    is_eager,
    look_up_codes,
    look_up_ids,
    look_up_int8,
    training_rows,
)
from cce.kernels.dispatch import Lookup
from cce.kernels.gather_sum import gather_rows, gather_sum
from cce.kernels.layout import Layout

__all__ = [
    "Bags",
    "CodeRows",
    "LaunchPlan",
    "Layout",
    "Lookup",
    "bind_int8",
    "gather_rows",
    "gather_sum",
    "is_eager",
    "look_up_codes",
    "look_up_ids",
    "look_up_int8",
    "training_rows",
]
