"""The lookup on the CPU, in compiled loops."""

from cce.kernels.cpu.lookup import look_up
from cce.kernels.cpu.plan import Launch, LaunchPlan
from cce.kernels.cpu.row_steps import AttachedStep, RowSums
from cce.kernels.cpu.saved import Bags

__all__ = ["AttachedStep", "Bags", "Launch", "LaunchPlan", "RowSums", "look_up"]
