"""The primitive that multiplies by M: rows of the codebook in, summed vectors out."""

from cce.kernels.cpu import int8
from cce.kernels.cpu.gradients import Bags
from cce.kernels.cpu.int8_rows import bind_int8, is_int8_ready, look_up_int8
from cce.kernels.cpu.lookup import is_eager, is_ready, look_up_ids
from cce.kernels.cpu.plan import LaunchPlan
from cce.kernels.dispatch import Lookup
from cce.kernels.layout import Layout, gather_rows, gather_sum
