"""The compiled lookup as a torch operator, `torch.ops.cce.look_up`, for `torch.compile`.

An operator takes tensors, numbers and words only. So layouts travel as one word (`flatten`), beside the index state
that they read, and a word's launch plan is kept until the state moves. Eager code does not come here: an operator
written in Python costs more than a small lookup.
"""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003  # torch reads the annotations of an operator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from cce.indexing.sources import RowSource, Slot, SlotKind, describe
from cce.kernels.cpu.deduplicate import CHUNK
from cce.kernels.cpu.gradients import gradients
from cce.kernels.cpu.lookup import forward
from cce.kernels.cpu.plan import LaunchPlan
from cce.kernels.cpu.rows import BLOCK
from cce.kernels.cpu.saved import SavedForBackward
from cce.kernels.layout import Layout

LAYOUT_NUMBERS, SLOT_NUMBERS = 7, 9
MAX_PLANS = 256  # that are kept: a model has one for each module with a lookup


def look_up(layouts: Sequence[Layout], codebooks: Sequence[Tensor], ids: Tensor) -> Tensor:
    """Vectors `(batch, Σ dim)` of ids `(batch, features)`."""
    word, state = flatten(layouts)
    vectors: Tensor = torch.ops.cce.look_up(ids, codebooks, state, word, torch.is_grad_enabled())[0]
    return vectors


# -- layouts as words --------------------------------------------------------------------------------------------------


def flatten(layouts: Sequence[Layout]) -> tuple[str, list[Tensor]]:
    """Layouts as a word of numbers, and the tensors that they read."""
    numbers: list[int] = []
    state: list[Tensor] = []

    def index(tensor: Tensor | None) -> int:
        if tensor is None:
            return -1
        state.append(tensor)
        return len(state) - 1

    for layout in layouts:
        padding = -1 if layout.padding_idx is None else layout.padding_idx
        numbers += [layout.num_embeddings, layout.columns, layout.terms, layout.width, layout.num_rows, padding]
        numbers += [layout.num_slots]
        for slot in describe(layout.sources):
            numbers += [int(slot.kind), slot.first_row, slot.num_rows, slot.column, index(slot.table)]
            numbers += [slot.num_learned, index(slot.seeds), slot.step, slot.block_size]
    return " ".join([str(number) for number in numbers]), state


def unflatten(word: str, state: Sequence[Tensor] | None) -> list[Layout]:
    """The layouts that were flattened, with or without state; their sources are only good for being described."""
    numbers, layouts, at = [int(number) for number in word.split()], [], 0
    while at < len(numbers):
        num_embeddings, columns, terms, width, num_rows, padding, num_slots = numbers[at : at + LAYOUT_NUMBERS]
        at += LAYOUT_NUMBERS
        slots = []
        for _ in range(num_slots):
            kind, first, rows, column, table, learned, seeds, step, block = numbers[at : at + SLOT_NUMBERS]
            at += SLOT_NUMBERS
            found = [None if state is None or index < 0 else state[index] for index in (table, seeds)]
            slots.append(Slot(SlotKind(kind), first, rows, column, found[0], learned, found[1], step, block))
        sources = (_Described(tuple(slots)),)
        layouts.append(
            Layout(num_embeddings, columns, terms, width, num_rows, sources, None if padding < 0 else padding)
        )
    return layouts


@dataclass(frozen=True)
class _Described(RowSource):
    entries: tuple[Slot, ...]

    @property
    def slots(self) -> Sequence[int]:  # type: ignore[override]
        return range(len(self.entries))

    def rows(self, ids: Tensor) -> Tensor:
        raise NotImplementedError

    def describe(self) -> list[Slot]:
        return list(self.entries)


class _Plans:
    """The launch plan of a word, for the index state at hand."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.plan: LaunchPlan | None = None
        self.addresses: list[int] = []

    def plan_for(self, state: Sequence[Tensor], codebooks: Sequence[Tensor]) -> LaunchPlan:
        addresses = [tensor.data_ptr() for tensor in state]
        if self.plan is None or self.addresses != addresses or not self.plan.is_current(codebooks):
            self.plan, self.addresses = LaunchPlan(unflatten(self.word, state)), addresses
        return self.plan

    def any_plan(self) -> LaunchPlan:
        """A plan that need not read any index state: for gradients."""
        return LaunchPlan(unflatten(self.word, None)) if self.plan is None else self.plan


@lru_cache(maxsize=MAX_PLANS)
def _plans(word: str) -> _Plans:
    return _Plans(word)


@lru_cache(maxsize=MAX_PLANS)
def _sizes(word: str) -> tuple[int, int, list[tuple[int, int]]]:
    """Values of all vectors of an example, rows that they are made of, and the shapes of the codebooks."""
    numbers, at = [int(number) for number in word.split()], 0
    dim, slots, shapes = 0, 0, []
    while at < len(numbers):
        _, columns, _, width, num_rows, _, num_slots = numbers[at : at + LAYOUT_NUMBERS]
        at += LAYOUT_NUMBERS + SLOT_NUMBERS * num_slots
        dim, slots = dim + columns * width, slots + num_slots
        shapes.append((num_rows, width))
    return dim, slots, shapes


# -- the operators -----------------------------------------------------------------------------------------------------


@torch.library.custom_op("cce::look_up", mutates_args=())
def _look_up(
    ids: Tensor,
    codebooks: Sequence[Tensor],
    state: Sequence[Tensor],
    word: str,
    save: bool,  # noqa: FBT001
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Vectors `(batch, Σ dim)` of ids `(batch, features)`; for backward, rows, names and lengths of lists."""
    launch = _plans(word).plan_for(state, codebooks).bind(codebooks)
    vectors, saved = forward(launch, ids, None, (len(ids), launch.plan.dim), save=save)
    return vectors, torch.from_numpy(saved.rows), torch.from_numpy(saved.names), torch.from_numpy(saved.listed)


@_look_up.register_fake
def _(
    ids: Tensor,
    codebooks: Sequence[Tensor],
    state: Sequence[Tensor],
    word: str,
    save: bool,  # noqa: FBT001
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    del state
    batch, (dim, slots, shapes) = ids.shape[0], _sizes(word)
    vectors = codebooks[0].new_empty(batch, dim)
    padded = (batch + BLOCK - 1) // BLOCK * BLOCK
    rows = ids.new_empty(padded * slots if save else 0, dtype=torch.int32)
    names = ids.new_empty(len(shapes) * batch if save else 0, dtype=torch.uint16)
    return vectors, rows, names, ids.new_empty((len(shapes), (batch + CHUNK - 1) // CHUNK), dtype=torch.int64)


@torch.library.custom_op("cce::scatter", mutates_args=())
def _scatter(
    grad: Tensor, rows: Tensor, names: Tensor, listed: Tensor, word: str, needed: Sequence[bool]
) -> list[Tensor]:
    """The dense gradients of the codebooks; an empty tensor for those that need none."""
    plan, batch = _plans(word).any_plan(), len(grad)
    lists = names.numpy(), listed.numpy()
    saved = SavedForBackward(plan, grad.dtype, batch, grad.shape, None, rows.numpy(), plan.starts(batch)[0], *lists)
    found = gradients(saved, grad, needed, sparse=False)
    return [grad.new_empty(0) if gradient is None else gradient for gradient in found]


@_scatter.register_fake
def _(grad: Tensor, rows: Tensor, names: Tensor, listed: Tensor, word: str, needed: Sequence[bool]) -> list[Tensor]:
    del rows, names, listed
    shapes = _sizes(word)[2]
    return [grad.new_empty(shape if need else (0,)) for shape, need in zip(shapes, needed, strict=True)]


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, codebooks, state, word, _ = inputs
    ctx.word, ctx.num_state = word, len(state)
    ctx.needed = [codebook.requires_grad for codebook in codebooks]
    ctx.save_for_backward(*output[1:])
    ctx.mark_non_differentiable(*output[1:])


def _backward(ctx: Any, grad: Tensor, *_: Tensor | None) -> tuple[Any, ...]:
    found = torch.ops.cce.scatter(grad.contiguous(), *ctx.saved_tensors, ctx.word, ctx.needed)
    return (
        None,
        [gradient if need else None for gradient, need in zip(found, ctx.needed, strict=True)],
        [None] * ctx.num_state,
        None,
        None,
    )


_look_up.register_autograd(_backward, setup_context=_set_up)
