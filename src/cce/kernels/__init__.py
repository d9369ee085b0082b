"""The primitive that multiplies by M: rows of the codebook in, summed vectors out."""

from cce.kernels.cpu import AttachedStep, Bags, CodeRows, RowSums, is_eager, look_up_codes
from cce.kernels.dispatch import Lookup
from cce.kernels.gather_sum import gather_rows, gather_sum
from cce.kernels.layout import Layout

__all__ = [
    "AttachedStep",
    "Bags",
    "CodeRows",
    "Layout",
    "Lookup",
    "RowSums",
    "gather_rows",
    "gather_sum",
    "is_eager",
    "look_up_codes",
]
