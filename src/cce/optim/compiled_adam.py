"""Lazy Adam in a compiled loop: a step of many parameters, row by row of their gradients. See `compiled_steps`."""

from __future__ import annotations

from typing import Any

import numpy as np

from cce.compiled import compile_loops, memory
from cce.optim.compiled_steps import COUNT, INDICES, PARAMETER, STATE, VALUES, WIDTH, entries

Array = np.ndarray[Any, Any]

read_int64 = memory.read_int64
read_float32, read_float64 = memory.read_float32, memory.read_float64
write_float32, write_float64 = memory.write_float32, memory.write_float64


@compile_loops
def read(address: int, item: int) -> float:
    """The value of `item` bytes at an address."""
    return read_float64(address) if item == 8 else np.float64(read_float32(address))


@compile_loops
def write(address: int, value: float, item: int) -> None:
    """Round a value to `item` bytes and store it."""
    if item == 8:
        write_float64(address, value)
    else:
        write_float32(address, np.float32(value))


@compile_loops
def step_adam(tables: Array, squares: Array, rates: Array, settings: Array, first: int, last: int) -> None:
    """`m += (1 - β1)(g - m)`, `v = β2 v + (1 - β2) g²`, `p += rate · m / (√v · scale + eps)`. No row may occur twice.

    squares: the address of each `v`; that of `m` is in `tables`.
    rates: a line of `rate` and `scale` for each parameter, which correct the bias of its moments.
    settings: β1, β2, eps, and the bytes of a value.
    """
    beta1, beta2, eps, item = settings[0], settings[1], settings[2], int(settings[3])
    start = 0
    for t in range(len(tables)):
        low, high = entries(tables[t], start, first, last)
        start += tables[t, COUNT]
        indices, width, rate, scale = tables[t, INDICES], tables[t, WIDTH], rates[t, 0], rates[t, 1]
        for i in range(low, high):
            place = read_int64(indices + 8 * i) * width * item
            for k in range(0, width * item, item):
                grad = read(tables[t, VALUES] + i * width * item + k, item)
                mean = read(tables[t, STATE] + place + k, item)
                mean += (1 - beta1) * (grad - mean)
                square = beta2 * read(squares[t] + place + k, item) + (1 - beta2) * grad * grad
                value = read(tables[t, PARAMETER] + place + k, item) + rate * mean / (np.sqrt(square) * scale + eps)
                write(tables[t, STATE] + place + k, mean, item)
                write(squares[t] + place + k, square, item)
                write(tables[t, PARAMETER] + place + k, value, item)
