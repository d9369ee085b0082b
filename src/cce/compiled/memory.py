"""Values at addresses, for compiled loops: a whole run of them is read, added and written by one instruction.

A lookup touches tables of many types in many arrays. Compiled loops get their addresses as integers and read and write
through the functions here, which numba turns into single instructions. `kind` is a number whose type says how floats
are stored (see `KINDS`), and `run` is a tuple as long as the number of floats that are handled together (see `RUNS`).

Sums are made in float32, or in float64 where that is stored. All addresses count bytes.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import torch

from cce.compiled.loops import available, why_plain

KINDS: dict[torch.dtype, Any] = {
    torch.float32: np.float32(0),
    torch.float64: np.float64(0),
    torch.bfloat16: np.uint16(0),
    torch.float16: np.int16(0),
}
BLOCK, TILE = 16, 6  # points and centroids whose distances are in registers at once (see `tiles`)
RUNS: dict[int, tuple[int, ...]] = {length: (0,) * length for length in (1, 2, 4, 8, 16)}


def longest_run(width: int) -> int:
    """The longest run that divides `width`."""
    return max(length for length in RUNS if width % length == 0)


def _missing(*_: Any) -> Any:
    raise ImportError(f"compiled loops are off: {why_plain}.")


_instructions: Any = importlib.import_module("cce.compiled.instructions") if available else None


_int8_rows: Any = importlib.import_module("cce.compiled.int8_rows") if available else None


_tiles: Any = importlib.import_module("cce.compiled.tiles") if available else None


def _instruction(name: str, module: Any = _instructions) -> Any:
    return getattr(module, name) if available else _missing


put, put_sum, add, add_scaled, clear = map(_instruction, ("put", "put_sum", "add", "add_scaled", "clear"))
count_bits, pointer, carray, prefetch = map(_instruction, ("count_bits", "pointer", "carray", "prefetch"))
read_uint8, read_uint16, read_int32, read_int64, read_uint64 = (
    _instruction(f"read_{kind}") for kind in ("uint8", "uint16", "int32", "int64", "uint64")
)
read_float32, read_float64 = map(_instruction, ("read_float32", "read_float64"))
write_int64, write_int32, write_float32 = map(_instruction, ("write_int64", "write_int32", "write_float32"))
put_codes, add_codes, move_codes, sum_squares, sum_weighted_squares, add_squares = (
    _instruction(name, _int8_rows)
    for name in ("put_codes", "add_codes", "move_codes", "sum_squares", "sum_weighted_squares", "add_squares")
)
bits_of = _instruction("bits_of")
score_tile, measure_tile = _instruction("score_tile", _tiles), _instruction("measure_tile", _tiles)
