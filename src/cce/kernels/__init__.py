"""The primitive that multiplies by M: rows of the codebook in, summed vectors out."""

from cce.kernels.gather_sum import gather_rows, gather_sum

__all__ = ["gather_rows", "gather_sum"]
