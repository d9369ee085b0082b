"""The lookup on the CPU, in compiled loops."""

from cce.kernels.cpu import training_rows
from cce.kernels.cpu.codes import CodeRows, look_up_codes
from cce.kernels.cpu.int8_rows import bind_int8, look_up_int8
from cce.kernels.cpu.lookup import is_eager, look_up, look_up_ids
from cce.kernels.cpu.plan import Launch, LaunchPlan
from cce.kernels.cpu.saved import Bags

__all__ = [
    "Bags",
    "CodeRows",
    "Launch",
    "LaunchPlan",
    "bind_int8",
    "is_eager",
    "look_up",
    "look_up_codes",
    "look_up_ids",
    "look_up_int8",
    "training_rows",
]
