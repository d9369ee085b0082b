"""Values at addresses, for compiled loops: a whole run of them is read, added and written by one instruction.

A lookup touches tables of many types in many arrays. Compiled loops get their addresses as integers and read and write
through the functions here, which numba turns into single instructions. `kind` is a number whose type says how floats
are stored (see `KINDS`), and `run` is a tuple as long as the number of floats that are handled together (see `RUNS`).

Sums are made in float32, or in float64 where that is stored. All addresses count bytes.
"""

import importlib
import platform
from typing import Any

import numpy as np
import torch

from cce.compiled.disk_cache import processor
from cce.compiled.loops import available, why_plain

KINDS: dict[torch.dtype, Any] = {
    torch.float32: np.float32(0),
    torch.float64: np.float64(0),
    torch.bfloat16: np.uint16(0),
}
if not available or "+f16c" in processor() or platform.machine().lower() not in ("x86_64", "amd64"):
    KINDS[torch.float16] = np.int16(
        0
    )  # without an instruction that widens it, LLVM calls what is not there, and aborts
BLOCK, TILE = 16, 6  # points and centroids whose distances are in registers at once (see `tiles`)
LANES = 8  # centroids of a tile, and what fills it up, when one point is measured
RUNS: dict[int, tuple[int, ...]] = {length: (0,) * length for length in (1, 2, 4, 8, 16)}


def longest_run(width: int) -> int:
    """The longest run that divides `width`."""
    return max(length for length in RUNS if width % length == 0)


def __getattr__(name: str) -> Any:
    """A function of the modules that need numba; one that only raises where loops are not compiled."""
    if not available:
        return _missing
    for module in ("instructions", "tiles"):
        found = getattr(importlib.import_module(f"cce.compiled.{module}"), name, None)
        if found is not None:
            return found
    raise AttributeError(f"compiled.memory has no {name!r}.")


def _missing(*_: Any) -> Any:
    raise ImportError(f"compiled loops are off: {why_plain}.")
