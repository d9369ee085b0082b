"""The compiled lookup as a torch operator, `torch.ops.cce.look_up`, for `torch.compile`.

An operator takes tensors and numbers only, so a lookup goes by its handle: a number that finds it as long as it lives.
Its launch plan is that of eager code, with the same versions, so a graph need not be compiled again when pointers
change. Eager code does not come here: an operator written in Python costs more than a small lookup.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from cce.kernels.cpu.gradients import SavedForBackward, dense_gradients
from cce.kernels.cpu.lookup import forward
from cce.kernels.cpu.plan import sum_type
from cce.kernels.cpu.rows import BLOCK

if TYPE_CHECKING:
    from cce.kernels.dispatch import Lookup

_handles = count()
_lookups: WeakValueDictionary[int, Lookup] = WeakValueDictionary()


def register(lookup: Lookup) -> int:
    """A handle for a lookup, which no other lookup of this process ever gets."""
    handle = next(_handles)
    _lookups[handle] = lookup
    return handle


def _look_up(ids: Tensor, codebooks: Sequence[Tensor], handle: int, save: bool) -> tuple[Tensor, Tensor]:  # noqa: FBT001
    """Vectors `(batch, Σ dim)` of ids `(batch, features)`, and the rows that backward needs."""
    launch = _lookups[handle].find_launch(codebooks)
    assert launch is not None  # the graph was made for codebooks that suit
    vectors, saved = forward(launch, ids, None, (len(ids), launch.plan.dim), save=save)
    return vectors, torch.from_numpy(saved.rows)


def _fake_look_up(
    ids: Tensor,
    codebooks: Sequence[Tensor],
    handle: int,
    save: bool,  # noqa: FBT001
) -> tuple[Tensor, Tensor]:
    layouts = [table.layout() for table in _lookups[handle].tables()]
    padded = (ids.shape[0] + BLOCK - 1) // BLOCK * BLOCK
    rows = ids.new_empty(padded * sum(layout.num_slots for layout in layouts) if save else 0, dtype=torch.int32)
    return codebooks[0].new_empty(ids.shape[0], sum(layout.dim for layout in layouts)), rows


def _scatter(grad: Tensor, rows: Tensor, handle: int, shapes: Sequence[int], needed: Sequence[bool]) -> list[Tensor]:
    """The dense gradients of the codebooks; an empty tensor for those that need none."""
    plan, batch = _lookups[handle].plan, len(grad)
    if plan is None or [size for shape in plan.shapes for size in shape] != list(shapes):
        raise RuntimeError("the tables changed their shapes between forward and backward.")
    starts, size = plan.starts(batch)
    assert len(rows) == size  # or loops would read what lies behind them
    saved = SavedForBackward(plan, grad.dtype, sum_type(grad.dtype), batch, None, rows.numpy(), starts)
    found = dense_gradients(saved, grad, needed)
    return [grad.new_empty(0) if gradient is None else gradient for gradient in found]


def _fake_scatter(
    grad: Tensor, rows: Tensor, handle: int, shapes: Sequence[int], needed: Sequence[bool]
) -> list[Tensor]:
    del rows, handle
    pairs = zip(shapes[::2], shapes[1::2], needed, strict=True)
    return [grad.new_empty((num_rows, width) if need else (0,)) for num_rows, width, need in pairs]


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, codebooks, ctx.handle, _ = inputs
    ctx.shapes = [size for codebook in codebooks for size in codebook.shape]
    ctx.needed = [codebook.requires_grad for codebook in codebooks]
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, grad: Tensor, *_: Tensor | None) -> tuple[Any, ...]:
    found = torch.ops.cce.scatter(grad.contiguous(), *ctx.saved_tensors, ctx.handle, ctx.shapes, ctx.needed)
    return None, [gradient if need else None for gradient, need in zip(found, ctx.needed, strict=True)], None, None


_library: Any = torch.library.Library("cce", "DEF")  # type: ignore[no-untyped-call]  # operators live as long as it does
_library.define("look_up(Tensor ids, Tensor[] codebooks, int handle, bool save) -> (Tensor, Tensor)")
_library.define("scatter(Tensor grad, Tensor rows, int handle, SymInt[] shapes, bool[] needed) -> Tensor[]")
_library.impl("look_up", _look_up, "CPU")
_library.impl("scatter", _scatter, "CPU")
torch.library.register_fake("cce::look_up", _fake_look_up, lib=_library)
torch.library.register_fake("cce::scatter", _fake_scatter, lib=_library)
torch.library.register_autograd("cce::look_up", _backward, setup_context=_set_up, lib=_library)
