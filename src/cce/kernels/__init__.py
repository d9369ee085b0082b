"""The primitive that multiplies by M: rows of the codebook in, summed vectors out."""

from cce.kernels.cpu import Bags
from cce.kernels.dispatch import Lookup
from cce.kernels.gather_sum import gather_rows, gather_sum
from cce.kernels.layout import Layout

__all__ = ["Bags", "Layout", "Lookup", "gather_rows", "gather_sum"]
