"""Which gradients compiled loops can apply, and one pass of a loop over all of them.

A parameter and its gradient go to the loops as a line of addresses. Nothing is done for each row in Python, and as
little as possible for each parameter: with small batches and many tables that is most of a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.nn import Parameter

from cce import compiled
from cce.compiled import parallel_for
from cce.optim import compiled_steps as loops

if TYPE_CHECKING:
    from collections.abc import Callable


TYPES: dict[torch.dtype, Any] = {torch.float32: np.float32, torch.float64: np.float64}
PLAIN = (Parameter, Tensor)
PARALLEL = 1 << 19  # below so many values, handing work to threads costs more than it saves
RANGES_PER_THREAD = 4  # so that a thread that is held up leaves its work to others


class Fused:
    """Gradients that compiled loops will apply. They must stay as they are until then."""

    def __init__(self) -> None:
        self.tables: dict[torch.dtype, Tables] = {}

    def add(self, parameter: Tensor, grad: Tensor, state: Tensor) -> bool:
        """Take in an ordinary tensor on the CPU, of float32 or float64, and its gradient; False for any other.

        state: what the loop keeps for each row.
        """
        dtype = parameter.dtype
        if dtype not in TYPES or type(parameter) not in PLAIN or not (parameter.is_cpu and parameter.is_contiguous()):
            return False
        num_rows = parameter.shape[0] if parameter.dim() else 1
        width = parameter.numel() // num_rows if num_rows else 0
        values, rows, count = grad, 0, num_rows
        if grad.is_sparse:
            indices, values = grad._indices(), grad._values()
            num_dims, count = indices.shape
            rows = indices.data_ptr()
            if num_dims != 1 or not indices.is_contiguous():
                return False
        if not values.is_contiguous() or values.dtype is not dtype:
            return False
        if dtype not in self.tables:
            self.tables[dtype] = Tables(TYPES[dtype])
        tables = self.tables[dtype]
        tables.columns += (parameter.data_ptr(), rows, values.data_ptr(), count, num_rows, width, state.data_ptr(), 0)
        tables.parameters.append(parameter)
        return True

    def check(self) -> list[Tables]:
        """Check all tables and return them; nothing may be written before all are checked."""
        for tables in self.tables.values():
            tables.check()
        return list(self.tables.values())


class Tables:
    """Parameters of one type. `lines`: what the loops must know of each."""

    def __init__(self, number: Any) -> None:
        self.number = number
        self.parameters: list[Tensor] = []
        self.columns: list[int] = []
        self.num_entries = self.size = 0
        self._held: list[Tensor] = []  # what the lines point to, where nobody else holds on to it

    def check(self) -> None:
        """Make the lines. Rejects rows that a parameter has not."""
        self.lines = np.array(self.columns, np.int64).reshape(-1, loops.NUM_COLUMNS)
        self.worst, self.num_entries, self.size = loops.inspect(self.lines)
        if self.worst == loops.OUTSIDE:
            index = int((self.lines[:, loops.ORDER] == loops.OUTSIDE).argmax())
            _reject(self.parameters[index])

    def coalesce(self) -> None:
        """Replace gradients whose rows do not strictly increase by coalesced ones."""
        if self.worst == loops.SORTED:
            return
        for index in np.flatnonzero(self.lines[:, loops.ORDER] == loops.UNSORTED).tolist():
            grad = self.parameters[index].grad
            assert grad is not None
            grad = grad.coalesce()
            indices, values = grad.indices().contiguous(), grad.values().contiguous()
            self._held += (indices, values)
            for column, value in (
                (loops.INDICES, indices.data_ptr()),
                (loops.VALUES, values.data_ptr()),
                (loops.COUNT, len(values)),
            ):
                self.lines[index, column] = value
        self.worst, self.num_entries, self.size = loops.inspect(self.lines)

    def run(self, step: Callable[[int, int], None]) -> None:
        """`step(first, last)` over all entries, in one range or, where that pays, in several on several threads."""
        num_threads = torch.get_num_threads() if self.size >= PARALLEL else 1
        if num_threads == 1:
            step(0, self.num_entries)
        else:
            num_ranges = num_threads * RANGES_PER_THREAD
            cuts = [self.num_entries * index // num_ranges for index in range(num_ranges + 1)]
            parallel_for(lambda index: step(cuts[index], cuts[index + 1]), num_ranges)
        increment_version(self.parameters)  # autograd must know that they were written to


def available() -> bool:
    """Whether there are loops, and this is no tracing of a graph."""
    return compiled.available and not torch.compiler.is_compiling()


def _reject(parameter: Tensor) -> None:
    assert parameter.grad is not None
    rows, num_rows = parameter.grad._indices()[0], len(parameter)
    wrong = rows[(rows < 0) | (rows >= num_rows)]
    raise IndexError(f"rows of a sparse gradient must lie in [0, {num_rows}), got {int(wrong[0])}.")
