"""The primitive that multiplies by M: rows of the codebook in, summed vectors out."""

from cce.kernels.gather_sum import gather_rows, gather_sum
from cce.kernels.layout import Layout, Program
from cce.kernels.lookup import look_up

__all__ = ["Layout", "Program", "gather_rows", "gather_sum", "look_up"]
