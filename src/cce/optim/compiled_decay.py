"""The decay that rows of sparse gradients lack, in a compiled loop. See `decay`, and `compiled_steps` for `tables`."""

from __future__ import annotations

from typing import Any

import numpy as np

from cce.compiled import compile_loops, memory
from cce.optim.compiled_steps import COUNT, INDICES, PARAMETER, STATE, WIDTH, add_row, entries

Array = np.ndarray[Any, Any]

read_int64 = memory.read_int64
read_float32, read_float64 = memory.read_float32, memory.read_float64
write_float32, write_float64 = memory.write_float32, memory.write_float64


@compile_loops
def decay_rows(tables: Array, clock: float, item: int, first: int, last: int) -> None:
    """`p += expm1(s - clock) · p`, then `s = clock`, with one `s` for each row. A row may occur several times."""
    start = 0
    for t in range(len(tables)):
        low, high = entries(tables[t], start, first, last)
        start += tables[t, COUNT]
        into, indices, width = tables[t, PARAMETER], tables[t, INDICES], tables[t, WIDTH]
        for i in range(low, high):
            row = read_int64(indices + 8 * i)
            state, values = tables[t, STATE] + row * item, into + row * width * item
            if item == 4:
                missing = read_float32(state) - clock
                if missing != 0:
                    add_row(values, values, width, item, np.float32(np.expm1(missing)))
                    write_float32(state, np.float32(clock))
            else:
                missing = read_float64(state) - clock
                if missing != 0:
                    add_row(values, values, width, item, np.float64(np.expm1(missing)))
                    write_float64(state, clock)
