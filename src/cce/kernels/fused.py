"""The lookup of many tables at once on the CPU, in compiled loops: ids in, vectors out, gradients back.

`look_up` is what `gather_sum` is for the rows that the tables' layouts name, for all tables in one call. Hashing and
pointers are read on the way. The rows are kept only where a gradient will be asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor, peek_interpreter_stack
from torch.autograd import forward_ad

from cce import compiled
from cce.compiled import parallel_for, scratch
from cce.compiled.memory import KINDS
from cce.kernels import compiled_lookup as loops
from cce.kernels.compiled_merge import CHUNK, NUM_PROBED
from cce.kernels.compiled_rows import BLOCK
from cce.kernels.gradients import PARALLEL_SLOTS, dense_gradients, differentiable_gradients, sparse_gradients
from cce.kernels.kept import Kept, Merged, count_ids, sum_type, zeros
from cce.kernels.layout import MAX_ROWS, row_starts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cce.kernels.kept import Bags
    from cce.kernels.layout import Program

Array = np.ndarray[Any, Any]

PLAIN = (Tensor, torch.nn.Parameter)
_NONE, _NOTHING = np.empty(0, np.int64), np.empty(0, np.uint8)


def usable(codebooks: Sequence[Tensor], ids: Tensor) -> bool:
    """Whether compiled loops can serve these tensors: real ones, on the CPU, of one float type, outside of tracing."""
    if not compiled.available or not _is_eager() or type(ids) not in PLAIN or ids.device.type != "cpu":
        return False
    dtype = codebooks[0].dtype
    return dtype in KINDS and all(
        type(codebook) in PLAIN
        and codebook.device.type == "cpu"
        and codebook.dtype is dtype
        and codebook.shape[0] <= MAX_ROWS
        for codebook in codebooks
    )


def _is_eager() -> bool:
    """Whether nobody records or transforms what torch does, as tracers, `torch.func` and dispatch modes do."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._is_tracing()
        or peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack()
    )


def look_up(
    program: Program, ids: Tensor, codebooks: Sequence[Tensor], *, bags: Bags | None = None, sparse: bool = False
) -> Tensor:
    """Vectors `(batch, Σ dim)` of int64 ids `(batch, features)`, or sums over bags of ids `(n)`."""
    trains = torch.is_grad_enabled() and any(codebook.requires_grad for codebook in codebooks)
    if trains or forward_ad._current_level >= 0:
        vectors: Tensor = _LookUp.apply(program, ids, bags, sparse, *codebooks)  # type: ignore[no-untyped-call]
        return vectors
    return forward(program, ids, codebooks, bags, keep=False)[0]


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        program: Program,
        ids: Tensor,
        bags: Bags | None,
        sparse: bool,  # noqa: FBT001
        *codebooks: Tensor,
    ) -> Tensor:
        vectors, ctx.kept = forward(program, ids, codebooks, bags, keep=True)
        ctx.sparse, ctx.ids = sparse, ids
        if bags is not None:  # backward reads them again, and torch knows whether they have changed
            ctx.save_for_backward(bags.offsets, bags.weights)
        return vectors

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        needed = ctx.needs_input_grad[4:]
        _ = ctx.saved_tensors  # an error if one has changed
        is_differentiated = torch.is_grad_enabled() and grad.requires_grad  # a gradient of the gradient is wanted
        if is_differentiated or not _is_eager() or is_legacy_batchedtensor(grad):  # is_grads_batched
            gradients = differentiable_gradients(ctx.kept, grad, needed)
        else:
            gradients = (sparse_gradients if ctx.sparse else dense_gradients)(ctx.kept, grad, needed)
        return (None, None, None, None, *gradients)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        kept: Kept = ctx.kept
        moved = [
            torch.zeros(shape, dtype=kept.dtype, device="cpu") if tangent is None else tangent
            for tangent, shape in zip(tangents[4:], kept.program.shapes, strict=True)
        ]
        return forward(kept.program, ctx.ids, moved, kept.bags, keep=False)[0]


# -- forward -----------------------------------------------------------------------------------------------------------


def forward(
    program: Program,
    ids: Tensor,
    codebooks: Sequence[Tensor],
    bags: Bags | None,
    *,
    keep: bool,
    merge: bool = True,
) -> tuple[Tensor, Kept]:
    """The vectors, and what backward needs, if asked to `keep` that; `merge` ids that come often."""
    dtype = codebooks[0].dtype
    sums = sum_type(dtype)
    codebooks = [codebook if codebook.is_contiguous() else codebook.contiguous() for codebook in codebooks]
    if [codebook.shape for codebook in codebooks] != program.shapes:  # loops would read what lies behind them
        raise ValueError(f"codebooks must have shapes {program.shapes}, got {[tuple(c.shape) for c in codebooks]}.")
    groups = program.placed(codebooks)
    batch = len(ids) if bags is None else bags.batch
    shape = (batch, program.dim)
    vectors = torch.empty(shape, dtype=sums, device="cpu") if bags is None else zeros(shape, sums)
    starts, size = program.starts(batch) if bags is None else row_starts(program, count_ids(program, batch, bags))
    rows = np.empty(size if keep else 0, np.int32)
    merges = merge and bags is None and batch >= NUM_PROBED
    merged = Merged.room(program.num_features, batch, keep=keep) if merges else Merged.none()
    out = (vectors.data_ptr(), program.dim * sums.itemsize, (dtype.itemsize, sums.itemsize), KINDS[dtype], KINDS[sums])
    look: Any = loops.look_up if bags is None else loops.look_up_bags
    wrong = []

    def run(index: int, num_threads: int) -> None:
        """The share of one thread: chunks of features, or ranges of bags."""
        own_rows = (rows, starts) if keep else (scratch("rows", program.most_slots * BLOCK, np.int32), _NONE)
        own_names = merged if keep or not merges else Merged.room(program.num_features, batch, keep=False)
        aside = scratch("vectors", program.room(sums.itemsize), np.uint8) if merges or bags is not None else _NOTHING
        for form, features in groups:
            if bags is None:
                tasks = len(features) * -(-batch // CHUNK)
                first, last = tasks * index // num_threads, tasks * (index + 1) // num_threads
                place = (features, program.slots, ids.data_ptr(), ids.stride(0) * 8, ids.stride(1) * 8, batch)
                names = (own_names.names, own_names.listed, scratch("ids", CHUNK, np.uint64), aside)
                found = look(*place, first, last, *own_rows, *names, *out, form)
            else:
                first, last = batch * index // num_threads, batch * (index + 1) // num_threads
                jagged = (features, program.slots, ids.data_ptr(), *bags.arrays())
                found = look(*jagged, first, last, batch, *own_rows, aside, *out, form)
            if found != loops.NO_ID:
                wrong.append(form)
                return

    num_threads = torch.get_num_threads() if size >= PARALLEL_SLOTS else 1
    if num_threads == 1:
        run(0, 1)
    else:
        parallel_for(lambda index: run(index, num_threads), num_threads)
    if wrong:
        _refuse(program, ids, bags)
    return (vectors if dtype is sums else vectors.to(dtype)), Kept(program, bags, rows, starts, merged, batch, dtype)


def _refuse(program: Program, ids: Tensor, bags: Bags | None) -> None:
    """Say which id is out of range, of which feature."""
    columns = ids.unbind(1) if bags is None else torch.split(ids, count_ids(program, bags.batch, bags))
    for place, (column, layout) in enumerate(zip(columns, program.layouts, strict=True)):
        outside = column[(column < 0) | (column >= layout.num_embeddings)]
        if len(outside):
            where = f" of {program.names[place]}" if program.names else ""
            raise IndexError(f"ids{where} must lie in [0, {layout.num_embeddings}), got {int(outside[0])}.")
