"""The compiled lookup as a torch operator, `torch.ops.cce.look_up`, for `torch.compile`.

An operator takes tensors and numbers only, so layouts travel as such (`flatten`) and are put together again inside.
Eager code does not come here: an operator written in Python costs more than a small lookup.
"""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003  # torch reads the annotations of an operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cce.indexing.sources import RowSource, Slot, SlotKind, describe
from cce.kernels import fused
from cce.kernels.compiled_rows import BLOCK
from cce.kernels.gradients import dense_gradients
from cce.kernels.kept import Kept, Merged
from cce.kernels.layout import Layout, Program

LAYOUT_NUMBERS, SLOT_NUMBERS = 7, 9


def flatten(layouts: Sequence[Layout]) -> tuple[list[int], list[Tensor]]:
    """Layouts as numbers, and the tensors that they read."""
    numbers: list[int] = []
    facts: list[Tensor] = []

    def index(fact: Tensor | None) -> int:
        if fact is None:
            return -1
        facts.append(fact)
        return len(facts) - 1

    for layout in layouts:
        padding = -1 if layout.padding_idx is None else layout.padding_idx
        numbers += [layout.num_embeddings, layout.columns, layout.terms, layout.width, layout.num_rows, padding]
        numbers += [layout.num_slots]
        for slot in describe(layout.sources):
            numbers += [int(slot.kind), slot.first_row, slot.num_rows, slot.column, index(slot.table)]
            numbers += [slot.num_learned, index(slot.seeds), slot.step, slot.block_size]
    return numbers, facts


def unflatten(numbers: Sequence[int], facts: Sequence[Tensor]) -> list[Layout]:
    """The layouts that were flattened; their sources are only good for being described."""
    layouts, at = [], 0
    while at < len(numbers):
        num_embeddings, columns, terms, width, num_rows, padding, num_slots = numbers[at : at + LAYOUT_NUMBERS]
        at += LAYOUT_NUMBERS
        slots = []
        for _ in range(num_slots):
            kind, first, rows, column, table, learned, seeds, step, block = numbers[at : at + SLOT_NUMBERS]
            at += SLOT_NUMBERS
            found = [None if index < 0 else facts[index] for index in (table, seeds)]
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


@torch.library.custom_op("cce::look_up", mutates_args=())
def look_up(
    ids: Tensor, codebooks: Sequence[Tensor], facts: Sequence[Tensor], numbers: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Vectors `(batch, Σ dim)` of ids `(batch, features)`, and the rows that they were made of."""
    program = Program(unflatten(numbers, facts))
    vectors, kept = fused.forward(program, ids, codebooks, None, keep=True, merge=False)
    return vectors, torch.from_numpy(kept.rows)


@look_up.register_fake
def _(
    ids: Tensor, codebooks: Sequence[Tensor], facts: Sequence[Tensor], numbers: Sequence[int]
) -> tuple[Tensor, Tensor]:
    layouts = unflatten(numbers, facts)
    padded = (ids.shape[0] + BLOCK - 1) // BLOCK * BLOCK
    vectors = codebooks[0].new_empty(ids.shape[0], sum(layout.dim for layout in layouts))
    return vectors, ids.new_empty(padded * sum(layout.num_slots for layout in layouts), dtype=torch.int32)


@torch.library.custom_op("cce::scatter", mutates_args=())
def scatter(
    grad: Tensor, rows: Tensor, facts: Sequence[Tensor], numbers: Sequence[int], needed: Sequence[bool]
) -> list[Tensor]:
    """The dense gradients of the codebooks; an empty tensor for those that need none."""
    program = Program(unflatten(numbers, facts))
    kept = Kept(program, None, rows.numpy(), program.starts(len(grad))[0], Merged.none(), len(grad), grad.dtype)
    gradients = dense_gradients(kept, grad, needed)
    return [grad.new_empty(0) if gradient is None else gradient for gradient in gradients]


@scatter.register_fake
def _(
    grad: Tensor, rows: Tensor, facts: Sequence[Tensor], numbers: Sequence[int], needed: Sequence[bool]
) -> list[Tensor]:
    del rows
    layouts = unflatten(numbers, facts)
    return [
        grad.new_empty((layout.num_rows, layout.width) if need else (0,))
        for layout, need in zip(layouts, needed, strict=True)
    ]


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, codebooks, facts, numbers = inputs
    ctx.numbers, ctx.num_facts = numbers, len(facts)
    ctx.needed = [codebook.requires_grad for codebook in codebooks]
    ctx.save_for_backward(output[1], *facts)
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Any, ...]:
    rows, *facts = ctx.saved_tensors
    gradients = torch.ops.cce.scatter(grad.contiguous(), rows, facts, ctx.numbers, ctx.needed)
    found = [gradient if need else None for gradient, need in zip(gradients, ctx.needed, strict=True)]
    return None, found, [None] * ctx.num_facts, None


look_up.register_autograd(_backward, setup_context=_set_up)
