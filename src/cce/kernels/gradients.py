"""Gradients of codebooks from gradients of vectors: dense, sparse, or as functions that can be differentiated again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cce.compiled import parallel_for, scratch
from cce.compiled.memory import KINDS
from cce.kernels import compiled_lookup as loops
from cce.kernels.compiled_merge import CHUNK
from cce.kernels.compiled_rows import BLOCK
from cce.kernels.compiled_sparse import list_features, renumber_features
from cce.kernels.kept import into_blocks, zeros

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from cce.kernels.kept import Bags, Kept
    from cce.kernels.layout import Share

Array = np.ndarray[Any, Any]

PARALLEL_SLOTS = 1 << 18  # below so many rows to fetch, handing work to threads costs more than it saves
SPARSEST = 1 << 10  # rows of a codebook for each row used, beyond which the used rows are sorted instead of marked


def dense_gradients(kept: Kept, grad: Tensor, needed: Sequence[bool]) -> list[Tensor | None]:
    """As large as the codebooks."""
    tables = [
        zeros(shape, kept.sums) if need else None for shape, need in zip(kept.program.shapes, needed, strict=True)
    ]
    _scatter(kept, grad, kept.rows, tables)
    return tables if kept.dtype is kept.sums else [table if table is None else table.to(kept.dtype) for table in tables]


def sparse_gradients(kept: Kept, grad: Tensor, needed: Sequence[bool]) -> list[Tensor | None]:
    """Coalesced: the rows that were used are numbered, and gradients summed in a table of those rows alone."""
    numbered = np.empty_like(kept.rows)
    marked = [place for place, need in enumerate(needed) if need and not _is_huge(kept, place)]
    used: list[Tensor | None] = [
        _sort_rows(kept, place, numbered) if need and place not in marked else None for place, need in enumerate(needed)
    ]
    for place, rows in zip(marked, _mark_rows(kept, marked, numbered), strict=True):
        used[place] = rows
    lengths = [0 if rows is None else len(rows) * width for rows, (_, width) in _with_shapes(kept, used)]
    tables = torch.split(zeros((sum(lengths),), kept.sums), lengths)
    views = [
        None if rows is None else table.view(len(rows), width)
        for (rows, (_, width)), table in zip(_with_shapes(kept, used), tables, strict=True)
    ]
    _scatter(kept, grad, numbered, views)
    return [
        None if rows is None or table is None else _coalesced(rows, table.to(kept.dtype), shape)
        for (rows, shape), table in zip(_with_shapes(kept, used), views, strict=True)
    ]


def _with_shapes(kept: Kept, used: list[Tensor | None]) -> list[tuple[Tensor | None, tuple[int, int]]]:
    return list(zip(used, kept.program.shapes, strict=True))


def differentiable_gradients(kept: Kept, grad: Tensor, needed: Sequence[bool]) -> list[Tensor | None]:
    """In plain torch, as functions of `grad`."""
    pieces = torch.split(grad, [layout.dim for layout in kept.program.layouts], dim=1)
    return [
        _transposed_product(kept, place, piece) if need else None
        for place, (piece, need) in enumerate(zip(pieces, needed, strict=True))
    ]


def _coalesced(rows: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    return torch.sparse_coo_tensor(rows.unsqueeze(0), values, shape, check_invariants=False, is_coalesced=True)


def _is_huge(kept: Kept, place: int) -> bool:
    """Whether a table has so many rows that the few used ones are better sorted than marked."""
    layout = kept.program.layouts[place]
    return layout.num_rows > SPARSEST * kept.counts[place] * layout.num_slots


def _mark_rows(kept: Kept, places: list[int], numbered: Array) -> Sequence[Tensor]:
    """The rows that features used, in order; `numbered` gets the place of each row among them."""
    if not places:
        return []
    program = kept.program
    num_words = np.zeros(program.num_features + 1, np.int64)
    num_words[1:][places] = [-(-program.layouts[place].num_rows // 64) for place in places]
    words = num_words.cumsum()
    bits, ranks = np.zeros(words[-1], np.uint64), np.empty(words[-1], np.uint64)
    sizes, counts = kept.sizes, np.zeros(program.num_features + 1, np.int64)
    slots = np.array(program.num_slots, np.int64)
    num_shares = torch.get_num_threads() if len(kept.rows) >= PARALLEL_SLOTS else 1
    shares = [np.array(places[first::num_shares], np.int64) for first in range(num_shares)]

    def mark(index: int) -> None:
        found = (shares[index], kept.rows, kept.starts, sizes, CHUNK, slots, bits, ranks, words, numbered, counts[1:])
        renumber_features(*found)

    parallel_for(mark, num_shares)
    ends = counts.cumsum()
    used = torch.empty(int(ends[-1]), dtype=torch.int64, device="cpu")
    list_features(np.array(places, np.int64), bits, words, ends, used.numpy())
    return [rows for place, rows in enumerate(torch.split(used, counts[1:].tolist())) if place in places]


def _sort_rows(kept: Kept, place: int, numbered: Array) -> Tensor:
    """The same by sorting, for the few ids of a batch in a table of millions of rows."""
    start = int(kept.starts[place])
    chunks = kept.listed_rows(place)
    rows = np.concatenate(chunks) if chunks else np.empty((0, kept.program.num_slots[place]), np.int32)
    counted = rows[:, 0] >= 0
    used, places = np.unique(rows[counted], return_inverse=True)
    names = np.full(rows.shape, -1, np.int32)
    names[counted] = places.reshape(-1, rows.shape[1])
    for chunk, part in enumerate(np.split(names, np.cumsum(kept.sizes[place])[:-1])):
        blocks = into_blocks(part, -(-len(part) // BLOCK) * BLOCK)
        first = start + chunk * CHUNK * rows.shape[1]
        numbered[first : first + len(blocks)] = blocks
    return torch.from_numpy(used.astype(np.int64))


def _scatter(kept: Kept, grad: Tensor, rows: Array, tables: Sequence[Tensor | None]) -> None:
    """Sum gradients into the rows of `tables`."""
    addresses = np.array([0 if table is None else table.data_ptr() for table in tables], dtype=np.int64)
    all_wanted = all(table is not None for table in tables)
    if grad.dtype is not kept.sums or not grad.is_contiguous():
        grad = grad.to(kept.sums).contiguous()
    stride, total, kind = kept.program.dim * grad.itemsize, grad.itemsize, KINDS[grad.dtype]
    scatter: Any = loops.scatter if kept.bags is None else loops.scatter_bags
    more = (kept.merged.names, kept.merged.listed) if kept.bags is None else kept.bags.arrays()

    def run(share: Share) -> None:
        aside = scratch("vectors", kept.program.room(total), np.uint8)
        for form, features, units in share:
            if not all_wanted:
                units = units[addresses[features[units[:, loops.FEATURE], loops.PLACE]] != 0]  # noqa: PLW2901
            place = (features, units, kept.batch, rows, kept.starts, *more, aside, addresses)
            scatter(*place, grad.data_ptr(), stride, total, kind, form)

    shares = kept.program.shares(torch.get_num_threads() if len(rows) >= PARALLEL_SLOTS else 1)
    if len(shares) == 1:
        run(shares[0])
    else:
        parallel_for(lambda index: run(shares[index]), len(shares))


def _transposed_product(kept: Kept, place: int, vectors: Tensor) -> Tensor:
    """`Hᵀ · vectors` for the rows that were kept of one feature."""
    layout = kept.program.layouts[place]
    rows = torch.from_numpy(kept.rows_by_id(place).astype(np.int64))
    if kept.bags is not None:
        vectors = _by_bag(kept.bags, place, vectors)
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
