"""Gradients of codebooks from gradients of vectors: dense, sparse, or as functions that can be differentiated again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cce.compiled import KINDS, parallel_for, scratch
from cce.kernels.cpu import loops
from cce.kernels.cpu.deduplicate import CHUNK
from cce.kernels.cpu.rows import BLOCK
from cce.kernels.cpu.saved import into_blocks, zeros
from cce.kernels.cpu.used_rows import list_features, renumber_features

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from cce.kernels.cpu.plan import WorkShare
    from cce.kernels.cpu.saved import Bags, SavedForBackward

Array = np.ndarray[Any, Any]

PARALLEL_SLOTS = 1 << 18  # below so many rows to fetch, handing work to threads costs more than it saves
SPARSEST = 1 << 10  # rows of a codebook for each row used, beyond which the used rows are sorted instead of marked


def gradients(saved: SavedForBackward, grad: Tensor, needed: Sequence[bool], *, sparse: bool) -> list[Tensor | None]:
    """The gradient of each codebook that needs one."""
    if grad.dtype is not saved.sums or not grad.is_contiguous():
        grad = grad.to(saved.sums).contiguous()
    return (_sparse_gradients if sparse else _dense_gradients)(saved, grad, needed)


def _dense_gradients(saved: SavedForBackward, grad: Tensor, needed: Sequence[bool]) -> list[Tensor | None]:
    """As large as the codebooks."""
    sums = saved.sums
    tables = [zeros(shape, sums) if need else None for shape, need in zip(saved.plan.shapes, needed, strict=True)]
    _scatter(saved, grad, saved.rows, tables, needed)
    return tables if saved.dtype is sums else [table if table is None else table.to(saved.dtype) for table in tables]


def _sparse_gradients(saved: SavedForBackward, grad: Tensor, needed: Sequence[bool]) -> list[Tensor | None]:
    """Coalesced: the rows that were used are numbered, and gradients summed in a table of those rows alone."""
    numbered, shapes = np.empty_like(saved.rows), saved.plan.shapes
    sorts = [need and _is_huge(saved, place) for place, need in enumerate(needed)]
    used: list[Tensor | None] = [
        _sort_rows(saved, place, numbered) if is_huge else None for place, is_huge in enumerate(sorts)
    ]
    marked = [place for place, need in enumerate(needed) if need and not sorts[place]]
    for place, rows in zip(marked, _mark_rows(saved, marked, numbered), strict=True):
        used[place] = rows
    lengths = [0 if rows is None else len(rows) * width for rows, (_, width) in zip(used, shapes, strict=True)]
    parts = torch.split(zeros((sum(lengths),), saved.sums), lengths)
    tables = [
        None if rows is None else part.view(-1, width)
        for rows, part, (_, width) in zip(used, parts, shapes, strict=True)
    ]
    _scatter(saved, grad, numbered, tables, needed)
    return [
        None if rows is None or table is None else _coalesced(rows, table.to(saved.dtype), shape)
        for rows, table, shape in zip(used, tables, shapes, strict=True)
    ]


def differentiable_gradients(saved: SavedForBackward, grad: Tensor, needed: Sequence[bool]) -> list[Tensor | None]:
    """In plain torch, as functions of `grad`."""
    grad = grad.reshape(saved.batch, saved.plan.dim)
    pieces = torch.split(grad, [layout.dim for layout in saved.plan.layouts], dim=1)
    return [
        _transposed_product(saved, place, piece) if need else None
        for place, (piece, need) in enumerate(zip(pieces, needed, strict=True))
    ]


def _coalesced(rows: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    return torch.sparse_coo_tensor(rows.unsqueeze(0), values, shape, check_invariants=False, is_coalesced=True)


def _is_huge(saved: SavedForBackward, place: int) -> bool:
    """Whether a table has so many rows that the few used ones are better sorted than marked."""
    num_rows, _ = saved.plan.shapes[place]
    if num_rows <= SPARSEST:
        return False
    return num_rows > SPARSEST * saved.counts[place] * saved.plan.num_slots[place]


def _mark_rows(saved: SavedForBackward, places: list[int], numbered: Array) -> Sequence[Tensor]:
    """The rows that features used, in order; `numbered` gets the index of each row among them."""
    if not places:
        return []
    plan = saved.plan
    num_words = np.zeros(plan.num_features + 1, np.int64)
    num_words[1:][places] = [-(-plan.shapes[place][0] // 64) for place in places]
    words = num_words.cumsum()
    bits, ranks = np.zeros(words[-1], np.uint64), np.empty(words[-1], np.uint64)
    sizes, counts = saved.sizes, np.zeros(plan.num_features + 1, np.int64)
    slots = np.array(plan.num_slots, np.int64)
    num_shares = torch.get_num_threads() if len(saved.rows) >= PARALLEL_SLOTS else 1
    shares = [np.array(places[first::num_shares], np.int64) for first in range(num_shares)]

    def mark(index: int) -> None:
        found = (shares[index], saved.rows, saved.starts, sizes, CHUNK, slots, bits, ranks, words, numbered, counts[1:])
        renumber_features(*found)

    parallel_for(mark, num_shares)
    ends = counts.cumsum()
    used = torch.empty(int(ends[-1]), dtype=torch.int64, device="cpu")
    list_features(np.array(places, np.int64), bits, words, ends, used.numpy())
    return [rows for place, rows in enumerate(torch.split(used, counts[1:].tolist())) if num_words[place + 1]]


def _sort_rows(saved: SavedForBackward, place: int, numbered: Array) -> Tensor:
    """The same by sorting, for the few ids of a batch in a table of millions of rows."""
    start = int(saved.starts[place])
    chunks = saved.listed_rows(place)
    rows = np.concatenate(chunks) if chunks else np.empty((0, saved.plan.num_slots[place]), np.int32)
    counted = rows[:, 0] >= 0
    used, ranks = np.unique(rows[counted], return_inverse=True)
    names = np.full(rows.shape, -1, np.int32)
    names[counted] = ranks.reshape(-1, rows.shape[1])
    for chunk, part in enumerate(np.split(names, np.cumsum(saved.sizes[place])[:-1])):
        blocks = into_blocks(part, -(-len(part) // BLOCK) * BLOCK)
        first = start + chunk * CHUNK * rows.shape[1]
        numbered[first : first + len(blocks)] = blocks
    return torch.from_numpy(used.astype(np.int64))


def _scatter(
    saved: SavedForBackward, grad: Tensor, rows: Array, tables: Sequence[Tensor | None], needed: Sequence[bool]
) -> None:
    """Sum gradients into the rows of those `tables` that are needed."""
    plan, item = saved.plan, grad.itemsize
    addresses = np.array([0 if table is None else table.data_ptr() for table in tables], dtype=np.int64)
    all_wanted = all(needed)
    upstream = (grad.data_ptr(), plan.dim * item, item, KINDS[grad.dtype])
    scatter: Any = loops.scatter if saved.bags is None else loops.scatter_bags
    more = (saved.names, saved.listed) if saved.bags is None else saved.bags.arrays()

    def run(share: WorkShare) -> None:
        workspace = scratch("vectors", plan.chunk_values * item, np.uint8)
        for specialisation, features, units in share:
            if not all_wanted:
                units = units[addresses[features[units[:, loops.FEATURE], loops.PLACE]] != 0]  # noqa: PLW2901
            batch = (features, units, saved.batch, rows, saved.starts, *more, workspace, addresses)
            scatter(*batch, *upstream, specialisation)

    shares = plan.work_shares(torch.get_num_threads() if len(rows) >= PARALLEL_SLOTS else 1)
    if len(shares) == 1:
        run(shares[0])
    else:
        parallel_for(lambda index: run(shares[index]), len(shares))


def _transposed_product(saved: SavedForBackward, place: int, vectors: Tensor) -> Tensor:
    """`Hᵀ · vectors` for the rows that were saved of one feature."""
    layout = saved.plan.layouts[place]
    rows = torch.from_numpy(saved.rows_by_id(place).astype(np.int64))
    if saved.bags is not None:
        vectors = _by_bag(saved.bags, place, vectors)
    counted = rows[:, 0] >= 0  # not padding
    pieces = vectors[counted].view(-1, layout.columns, 1, layout.width).expand(-1, -1, layout.terms, -1)
    table = vectors.new_zeros(layout.num_rows, layout.width)
    return table.index_add(0, rows[counted].reshape(-1), pieces.reshape(-1, layout.width))


def _by_bag(bags: Bags, place: int, vectors: Tensor) -> Tensor:
    """The vector of each id's bag, times the id's weight."""
    offsets = bags.offsets[place * bags.batch : (place + 1) * bags.batch + 1]
    vectors = vectors.repeat_interleave(offsets.diff(), dim=0)
    if bags.weights is None:
        return vectors
    return vectors * bags.weights[int(offsets[0]) : int(offsets[-1])].detach().unsqueeze(-1).to(vectors.dtype)
