"""The primitive that multiplies by M: rows of the codebook in, summed vectors out."""

from cce.kernels.cpu import (
    Bags,
    LaunchPlan,
    bind_int8,
    int8,
    is_eager,
    is_int8_ready,
    is_ready,
    look_up_ids,
    look_up_int8,
)
from cce.kernels.dispatch import Lookup
from cce.kernels.gather_sum import gather_rows, gather_sum
from cce.kernels.layout import Layout

__all__ = [
    "Bags",
    "LaunchPlan",
    "Layout",
    "Lookup",
    "bind_int8",
    "gather_rows",
    "gather_sum",
    "int8",
    "is_eager",
    "is_int8_ready",
    "is_ready",
    "look_up_ids",
    "look_up_int8",
]
