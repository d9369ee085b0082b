"""The primitive that multiplies by M: rows of the codebook in, summed vectors out."""

from cce.kernels.cpu import AttachedStep, Bags, RowSums
from cce.kernels.dispatch import Lookup
from cce.kernels.gather_sum import gather_rows, gather_sum
from cce.kernels.layout import Layout

__all__ = ["AttachedStep", "Bags", "Layout", "Lookup", "RowSums", "gather_rows", "gather_sum"]
