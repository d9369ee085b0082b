"""The lookup on the CPU, in compiled loops."""

from cce.kernels.cpu import int8
from cce.kernels.cpu.int8_rows import bind_int8, is_int8_ready, look_up_int8
from cce.kernels.cpu.lookup import is_eager, is_ready, look_up, look_up_ids
from cce.kernels.cpu.plan import Launch, LaunchPlan
from cce.kernels.cpu.saved import Bags

__all__ = [
    "Bags",
    "Launch",
    "LaunchPlan",
    "bind_int8",
    "int8",
    "is_eager",
    "is_int8_ready",
    "is_ready",
    "look_up",
    "look_up_ids",
    "look_up_int8",
]
