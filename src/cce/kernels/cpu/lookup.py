"""The lookup of many tables at once on the CPU, in compiled loops: ids in, vectors out, gradients back.

`look_up` is what `gather_sum` is for the rows that the tables' layouts name, for all tables in one call. Hashing and
pointers are read on the way. The rows are saved only where a gradient will be asked for.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from cce.compiled import is_compiled, parallel_for, scratch
from cce.kernels.cpu import loops
from cce.kernels.cpu.gradients import (
    NO_BAGS,
    PARALLEL_SLOTS,
    Bags,
    SavedForBackward,
    dense_gradients,
    sparse_gradients,
    zeros,
)
from cce.kernels.cpu.plan import Launch, LaunchPlan, row_starts
from cce.kernels.cpu.rows import BLOCK

Array = np.ndarray[Any, Any]

CPU = torch.device("cpu")
NOT_SAVED, NO_ROWS, NO_SPACE = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.uint8)
_requires_grad = attrgetter("requires_grad")
NUM_OTHERS = 6  # arguments of the lookup before the codebooks
NO_GRADIENTS = (None,) * NUM_OTHERS


def is_eager() -> bool:
    """Whether nobody records or transforms what torch does, as tracers, `torch.func` and dispatch modes do.

    Forward-mode derivatives are plain torch's as well.
    """
    return not (
        torch.compiler.is_compiling()
        or forward_ad._current_level >= 0
        or torch.jit.is_tracing()  # type: ignore[no-untyped-call]
        or peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack()
    )


def look_up(
    launch: Launch,
    ids: Tensor,
    codebooks: Sequence[Tensor],
    *,
    bags: Bags | None = None,
    shape: Sequence[int] | None = None,
    sparse: bool = False,
    plain: Callable[[], Tensor] | None = None,
) -> Tensor:
    """Vectors `(batch, Σ dim)`, or of another `shape`, of ids `(batch, features)`, or sums over bags of ids `(n)`.

    Ids of a single feature may be `(batch)`. A shape that is made here need not be viewed and viewed back by autograd.
    `plain` gives the same vectors to the bit, without loops, while these are still compiled; gradients, whose sums have
    an order, come from the loops all the same.
    """
    if shape is None:
        shape = (ids.shape[0] if bags is None else bags.batch, launch.plan.dim)
    if not (torch.is_grad_enabled() and any(map(_requires_grad, codebooks))):
        return forward(launch, ids, bags, shape, save=False)[0] if plain is None else plain().view(shape)
    vectors: Tensor = _LookUp.apply(launch, ids, bags, shape, sparse, plain, *codebooks)  # type: ignore[no-untyped-call]
    return vectors


def is_ready(launch: Launch, bags: Bags | None = None) -> bool:
    """Whether the loops of a lookup are compiled; if not, that begins in the background.

    Bags in half precision always wait: plain torch rounds the vectors that it adds up.
    """
    if launch.dtype in launch.plan.compiled_for or (bags is not None and launch.dtype is not launch.sums):
        return True
    numbers = ((0, 0, 0, 0, 0, *NO_BAGS), (0, 0), (NO_ROWS, NOT_SAVED), NO_SPACE, (0, 0), launch.floats)
    for special, features in launch.groups:
        if not is_compiled(loops.look_up, (features, launch.plan.slots, *numbers, special)):
            return False
    launch.plan.compiled_for.add(launch.dtype)
    return True


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        launch: Launch,
        ids: Tensor,
        bags: Bags | None,
        shape: Sequence[int],
        sparse: bool,  # noqa: FBT001
        plain: Callable[[], Tensor] | None,
        *codebooks: Tensor,
    ) -> Tensor:
        if plain is None:
            vectors, ctx.saved = forward(launch, ids, bags, shape, save=True)
        else:
            vectors, ctx.saved = plain().view(shape), None
            ctx.launch, ctx.bags, ctx.shape = launch, bags, shape
            ctx.held = [codebook.detach() for codebook in codebooks]  # the launch has their addresses
        ctx.sparse, ctx.ids = sparse, ids
        if bags is not None:  # backward reads them again, and torch knows whether they have changed
            ctx.save_for_backward(bags.offsets, bags.weights)
        return vectors

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved: SavedForBackward = ctx.saved or forward(ctx.launch, ctx.ids, ctx.bags, ctx.shape, save=True)[1]
        needed = ctx.needs_input_grad[NUM_OTHERS:]
        if saved.bags is not None:
            _ = ctx.saved_tensors  # an error if one has changed
        return *NO_GRADIENTS, *(sparse_gradients if ctx.sparse else dense_gradients)(saved, grad, needed)


# -- forward -----------------------------------------------------------------------------------------------------------


def forward(
    launch: Launch, ids: Tensor, bags: Bags | None, shape: Sequence[int], *, save: bool
) -> tuple[Tensor, SavedForBackward]:
    """The vectors, and what backward needs, if that is to be saved."""
    vectors, saved = look_up_ids(launch, ids, shape, bags=bags, save=save)
    return (vectors if launch.dtype is launch.sums else vectors.to(launch.dtype)), saved


def look_up_ids(
    launch: Launch, ids: Tensor, shape: Sequence[int], *, bags: Bags | None = None, save: bool
) -> tuple[Tensor, SavedForBackward]:
    """The vectors of ids as they were summed, in float32 for half precision, and what backward needs of them."""
    plan, item = launch.plan, ids.itemsize
    if bags is None:
        batch, strides, own_bags = ids.shape[0], (ids.stride(0) * item, ids.stride(-1) * item), NO_BAGS
        vectors = torch.empty(shape, dtype=launch.sums, device=CPU)
        starts, size = plan.starts(batch)
    else:
        batch, strides, own_bags = bags.batch, (item, 0), bags.arrays()
        vectors = zeros(shape, launch.sums)
        starts, size = row_starts(plan, bags.counts(plan.num_features))
    rows = np.empty(size if save else 0, np.int32)
    source = (ids.data_ptr(), item, *strides, batch, *own_bags)
    out = (vectors.data_ptr(), plan.dim * launch.sums.itemsize)

    def run(index: int, num_threads: int) -> bool:
        """A work share: a range of examples of every feature. Whether all ids were right."""
        saved = (rows, starts) if save else (scratch("rows", plan.most_slots * BLOCK, np.int32), NOT_SAVED)
        workspace = scratch("vectors", plan.block_values * launch.sums.itemsize, np.uint8)
        share = (batch * index // num_threads, batch * (index + 1) // num_threads)
        for special, features in launch.groups:
            if not loops.look_up(features, plan.slots, source, share, saved, workspace, out, launch.floats, special):
                return False
        return True

    if not (run(0, 1) if size < PARALLEL_SLOTS else run_shares(run)):
        columns = ids.view(batch, -1).unbind(1) if bags is None else torch.split(ids, bags.counts(plan.num_features))
        name_wrong_id(plan, columns)
    return vectors, SavedForBackward(plan, launch.dtype, launch.sums, batch, bags, rows, starts)


def run_shares(run: Callable[[int, int], bool]) -> bool:
    """Whether all ids were right, in a work share for each thread."""
    num_threads = torch.get_num_threads()
    wrong: list[int] = []
    parallel_for(lambda index: None if run(index, num_threads) else wrong.append(index), num_threads)
    return not wrong


def name_wrong_id(plan: LaunchPlan, columns: Sequence[Tensor]) -> None:
    """Say which id is out of range, of which feature."""
    for place, (column, layout) in enumerate(zip(columns, plan.layouts, strict=True)):
        outside = column[(column < 0) | (column >= layout.num_embeddings)]
        if len(outside):
            where = f" of {plan.names[place]}" if plan.names else ""
            raise IndexError(f"ids{where} must lie in [0, {layout.num_embeddings}), got {int(outside[0])}.")
