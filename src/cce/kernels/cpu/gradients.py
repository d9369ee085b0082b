"""Gradients of codebooks from gradients of vectors: dense, sparse, or as functions that can be differentiated again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cce.compiled import KINDS, parallel_for, scratch
from cce.kernels.cpu import loops
from cce.kernels.cpu.deduplicate import CHUNK
from cce.kernels.cpu.rows import BLOCK
from cce.kernels.cpu.saved import Bags, SavedForBackward, into_blocks, zeros
from cce.kernels.cpu.used_rows import list_features, renumber_features

if TYPE_CHECKING:
    from cce.kernels.cpu.plan import WorkShare

Array = np.ndarray[Any, Any]

PARALLEL_SLOTS = 1 << 18  # below so many rows to fetch, handing work to threads costs more than it saves
SPARSEST = 1 << 10  # rows of a codebook for each row used, beyond which the used rows are sorted instead of marked


def dense_gradients(saved: SavedForBackward, grad: Tensor, needed: Sequence[bool]) -> list[Tensor | None]:
    """As large as the codebooks."""
    sums, dtype = saved.sums, saved.dtype
    tables = [zeros(shape, sums) if need else None for shape, need in zip(saved.plan.shapes, needed, strict=True)]
    addresses = np.array([0 if table is None else table.data_ptr() for table in tables], np.int64)
    _scatter(saved, grad, saved.rows, addresses, needed)
    return tables if dtype is sums else [table if table is None else table.to(dtype) for table in tables]


def sparse_gradients(saved: SavedForBackward, grad: Tensor, needed: Sequence[bool]) -> list[Tensor | None]:
    """Coalesced: the rows that were used, and their sums."""
    sums = _sum_used_rows(saved, grad, needed)
    indices = torch.split(sums.rows.unsqueeze(0), np.diff(sums.first_rows).tolist(), dim=1)
    values = torch.split(sums.values.to(saved.dtype), np.diff(sums.first_values).tolist())
    return [
        torch.sparse_coo_tensor(index, value.view(-1, shape[1]), shape, check_invariants=False, is_coalesced=True)
        if need
        else None
        for index, value, shape, need in zip(indices, values, saved.plan.shapes, needed, strict=True)
    ]


class _RowSums(NamedTuple):
    """Sums of gradients of the rows that were used, of all features one after the other."""

    rows: Tensor  # int64, increasing for each feature
    first_rows: Array  # (features + 1): where the rows of each feature start
    values: Tensor
    first_values: Array  # (features + 1)


def _sum_used_rows(saved: SavedForBackward, grad: Tensor, needed: Sequence[bool]) -> _RowSums:
    """The rows that were used are numbered, and gradients summed in a table of those rows alone."""
    numbered = np.empty_like(saved.rows)
    sorts = [need and _is_huge(saved, place) for place, need in enumerate(needed)]
    marked = [place for place, need in enumerate(needed) if need and not sorts[place]]
    rows, counts = _mark_rows(saved, marked, numbered)
    if any(sorts):
        parts = list(torch.split(rows, counts.tolist()))
        for place, is_huge in enumerate(sorts):
            if is_huge:
                parts[place] = _sort_rows(saved, place, numbered)
        rows, counts = torch.cat(parts), np.array([len(part) for part in parts], np.int64)
    first_rows = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=first_rows[1:])
    values, first_values = _sum_into(saved, grad, numbered, first_rows, needed)
    return _RowSums(rows, first_rows, values, first_values)


def _sum_into(
    saved: SavedForBackward, grad: Tensor, rows: Array, first_rows: Array, needed: Sequence[bool]
) -> tuple[Tensor, Array]:
    """Sums in tables one after the other, with as many rows as `first_rows` says; and where each table starts."""
    widths = np.array([width for _, width in saved.plan.shapes], np.int64)
    first_values = np.zeros(len(first_rows), np.int64)
    np.cumsum(np.diff(first_rows) * widths, out=first_values[1:])
    values = zeros((int(first_values[-1]),), saved.sums)
    addresses = values.data_ptr() + first_values[:-1] * values.itemsize
    _scatter(saved, grad, rows, addresses, needed)
    return values, first_values


def differentiable_gradients(saved: SavedForBackward, grad: Tensor, needed: Sequence[bool]) -> list[Tensor | None]:
    """In plain torch, as functions of `grad`."""
    grad = grad.reshape(saved.batch, saved.plan.dim)
    pieces = torch.split(grad, [layout.dim for layout in saved.plan.layouts], dim=1)
    return [
        _transposed_product(saved, place, piece) if need else None
        for place, (piece, need) in enumerate(zip(pieces, needed, strict=True))
    ]


def _is_huge(saved: SavedForBackward, place: int) -> bool:
    """Whether a table has so many rows that the few used ones are better sorted than marked."""
    num_rows, _ = saved.plan.shapes[place]
    if num_rows <= SPARSEST:
        return False
    return num_rows > SPARSEST * saved.counts[place] * saved.plan.num_slots[place]


def _mark_rows(saved: SavedForBackward, places: list[int], numbered: Array) -> tuple[Tensor, Array]:
    """The rows that features used, in order, and how many; `numbered` gets the index of each row among them."""
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
    return used, counts[1:]


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


def _scatter(saved: SavedForBackward, grad: Tensor, rows: Array, addresses: Array, needed: Sequence[bool]) -> None:
    """Sum gradients into the rows of the tables at `addresses`, of those that are needed."""
    if grad.dtype is not saved.sums or not grad.is_contiguous():
        grad = grad.to(saved.sums).contiguous()
    plan, item = saved.plan, grad.itemsize
    wanted = None if all(needed) else np.array(needed)
    upstream = (grad.data_ptr(), plan.dim * item, item, KINDS[grad.dtype])
    scatter: Any = loops.scatter if saved.bags is None else loops.scatter_bags
    more = (saved.names, saved.listed) if saved.bags is None else saved.bags.arrays()

    def run(share: WorkShare) -> None:
        workspace = scratch("vectors", plan.chunk_values * item, np.uint8)
        for specialisation, features, units in share:
            if wanted is not None:
                units = units[wanted[features[units[:, loops.FEATURE], loops.PLACE]]]  # noqa: PLW2901
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
