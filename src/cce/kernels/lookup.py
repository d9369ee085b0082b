"""The door to every lookup of a linear table: compiled where that is possible, in plain torch everywhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch._C._functorch import peek_interpreter_stack

from cce import compiled
from cce.compiled.memory import KINDS
from cce.indexing.sources import rows_of
from cce.kernels import fused, operator
from cce.kernels.gather_sum import gather_sum
from cce.kernels.layout import MAX_ROWS, Program
from cce.kernels.triton_autograd import triton_gather_sum
from cce.kernels.triton_gather_sum import usable as triton_usable

if TYPE_CHECKING:
    from torch import Tensor

    from cce.kernels.layout import Layout


def look_up(layout: Layout, codebook: Tensor, ids: Tensor, *, sparse: bool = False) -> Tensor:
    """Vectors `(n, dim)` of int64 ids `(n)`: the rows that the layout names, summed over terms, columns side by side.

    Vectors of padding may be zero or not.
    """
    if fused.usable([codebook], ids):
        return fused.look_up(Program([layout]), ids.unsqueeze(1), [codebook], sparse=sparse)
    if _compiles_to_operator(codebook, ids, sparse=sparse):
        numbers, facts = operator.flatten([layout])
        vectors: Tensor = torch.ops.cce.look_up(ids.unsqueeze(1), [codebook], facts, numbers)[0]
        return vectors
    if not compiled.available and not torch.compiler.is_compiling():
        compiled.warn_plain()
    rows = rows_of(layout.sources, ids).view(-1, layout.columns, layout.terms)
    if _suits_triton(codebook):
        return triton_gather_sum(codebook, rows, sparse=sparse)
    return gather_sum(codebook, rows, sparse=sparse)


def _compiles_to_operator(codebook: Tensor, ids: Tensor, *, sparse: bool) -> bool:
    """Inside `torch.compile` on the CPU. An exported program stays free of our operators: it must run without us."""
    return (
        torch.compiler.is_compiling()
        and not torch.compiler.is_exporting()
        and compiled.available
        and not sparse
        and codebook.dtype in KINDS
        and codebook.shape[0] <= MAX_ROWS
        and codebook.device.type == ids.device.type == "cpu"
    )


def _suits_triton(codebook: Tensor) -> bool:
    """On a GPU with Triton, outside of tracing and of `torch.func`."""
    if torch.compiler.is_compiling() or peek_interpreter_stack() is not None:
        return False
    return type(codebook) in fused.PLAIN and triton_usable(codebook)
