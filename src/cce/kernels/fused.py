"""The lookup of many tables at once on the CPU, in compiled loops: ids in, vectors out, gradients back.

`look_up` is what `gather_sum` is for the rows that the tables' layouts name, for all tables in one call. Hashing and
pointers are read on the way. The rows are kept only where a gradient will be asked for.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor, peek_interpreter_stack
from torch.autograd import forward_ad

from cce import compiled
from cce.compiled import parallel_for
from cce.compiled.memory import KINDS
from cce.kernels import compiled_lookup as loops
from cce.kernels.compiled_rows import BLOCK
from cce.kernels.compiled_sparse import list_rows, renumber
from cce.kernels.layout import MAX_ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cce.kernels.layout import Layout, Program, Share

Array = np.ndarray[Any, Any]

PARALLEL_SLOTS = 1 << 15  # below so many rows to fetch, handing work to threads costs more than it saves
SPARSEST = 1 << 10  # rows of a codebook for each row used, beyond which the used rows are sorted instead of marked
PLAIN = (Tensor, torch.nn.Parameter)
_NONE = np.empty(0, np.int64)
_NO_WEIGHTS = np.empty(0, np.float64)


@dataclass(frozen=True)
class Bags:
    """Many ids for each feature and example: bag `b` of feature `f` is `offsets[f · batch + b : … + 1]` of the ids."""

    offsets: Tensor  # (num_features · batch + 1), int64
    batch: int
    weights: Tensor | None = None  # one for each id

    def arrays(self) -> tuple[Array, Array]:
        """Offsets and weights for compiled loops."""
        weights = _NO_WEIGHTS if self.weights is None else self.weights.detach().double().contiguous().numpy()
        return self.offsets.contiguous().numpy(), weights


@dataclass(frozen=True)
class Kept:
    """What a forward pass keeps for its backward pass."""

    program: Program
    bags: Bags | None
    rows: Array
    batch: int
    dtype: torch.dtype

    @property
    def counts(self) -> list[int]:
        """Ids of each feature."""
        return _counts(self.program, self.batch, self.bags)

    @property
    def sums(self) -> torch.dtype:
        """The type that gradients are summed in."""
        return _sum_type(self.dtype)


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
        vectors, rows, batch = forward(program, ids, codebooks, bags, keep=True)
        ctx.kept, ctx.sparse, ctx.ids = Kept(program, bags, rows, batch, codebooks[0].dtype), sparse, ids
        if bags is not None:  # backward reads them again, and torch knows whether they have changed
            ctx.save_for_backward(bags.offsets, bags.weights)
        return vectors

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        needed = ctx.needs_input_grad[4:]
        _ = ctx.saved_tensors  # an error if one has changed
        is_differentiated = torch.is_grad_enabled() and grad.requires_grad  # a gradient of the gradient is wanted
        if is_differentiated or not _is_eager() or is_legacy_batchedtensor(grad):  # is_grads_batched
            gradients = _differentiable_gradients(ctx.kept, grad, needed)
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
    program: Program, ids: Tensor, codebooks: Sequence[Tensor], bags: Bags | None, *, keep: bool
) -> tuple[Tensor, Array, int]:
    """The vectors, the rows they were made of (where asked to `keep` them), and the size of the batch."""
    dtype = codebooks[0].dtype
    sums = _sum_type(dtype)
    codebooks = [codebook.contiguous() for codebook in codebooks]  # held until the end
    if [codebook.shape for codebook in codebooks] != program.shapes:  # loops would read what lies behind them
        raise ValueError(f"codebooks must have shapes {program.shapes}, got {[tuple(c.shape) for c in codebooks]}.")
    groups = [(form, _with_codebooks(features, codebooks)) for form, features in program.groups]
    batch = len(ids) if bags is None else bags.batch
    vectors = (torch.empty if bags is None else torch.zeros)(batch, program.dim, dtype=sums, device="cpu")
    counts = _counts(program, batch, bags)
    starts, size = row_starts(program, counts)
    rows = np.empty(size if keep else 0, np.int32)
    out = (vectors.data_ptr(), program.dim * sums.itemsize, (dtype.itemsize, sums.itemsize))
    look: Any = loops.look_up if bags is None else loops.look_up_bags
    where: tuple[Any, ...] = (ids.stride(0) * 8, ids.stride(1) * 8) if bags is None else bags.arrays()
    more = () if bags is None else (batch,)
    kinds = (KINDS[dtype],) if bags is None else (KINDS[dtype], KINDS[sums])
    wrong = []

    def run(first: int, last: int) -> None:
        kept = (rows, starts) if keep else (np.empty(program.most_slots * BLOCK, np.int32), _NONE)
        for form, features in groups:
            place = (features, program.slots, ids.data_ptr(), *where, first, last, *more)
            if look(*place, *kept, *out, *kinds, form) != loops.NO_ID:
                wrong.append(form)
                return

    _in_ranges(run, batch, size)
    if wrong:
        _refuse(program, ids, counts, bags)
    return (vectors if dtype is sums else vectors.to(dtype)), rows, batch


def _with_codebooks(features: Array, codebooks: Sequence[Tensor]) -> Array:
    features = features.copy()
    features[:, loops.CODEBOOK] = [codebooks[place].data_ptr() for place in features[:, loops.PLACE].tolist()]
    return features


def _sum_type(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype is torch.float64 else torch.float32


def _counts(program: Program, batch: int, bags: Bags | None) -> list[int]:
    """How many ids each feature has."""
    if bags is None:
        return [batch] * program.num_features
    ends = bags.offsets[::batch] if batch else bags.offsets.new_zeros(program.num_features + 1)
    counts: list[int] = ends.diff().tolist()
    return counts


def row_starts(program: Program, counts: Sequence[int]) -> tuple[Array, int]:
    """Where the rows of each feature start, in whole blocks, and how many there are in all."""
    sizes = [-(-n // BLOCK) * BLOCK * slots for n, slots in zip(counts, program.num_slots, strict=True)]
    ends = list(itertools.accumulate(sizes, initial=0))
    return np.array(ends[:-1], dtype=np.int64), ends[-1]


def _in_ranges(run: Any, batch: int, work: int) -> None:
    """`run(first, last)` over all of the batch: in one range, or in one for each thread, cut at blocks."""
    num_blocks = -(-batch // BLOCK)
    num_threads = min(torch.get_num_threads(), num_blocks) if work >= PARALLEL_SLOTS else 1
    if num_threads <= 1:
        run(0, batch)
        return
    cuts = [min(batch, num_blocks * index // num_threads * BLOCK) for index in range(num_threads + 1)]
    parallel_for(lambda index: run(cuts[index], cuts[index + 1]), num_threads)


def _refuse(program: Program, ids: Tensor, counts: list[int], bags: Bags | None) -> None:
    """Say which id is out of range, of which feature."""
    columns = torch.split(ids, counts) if bags is not None else ids.unbind(1)
    for place, (column, layout) in enumerate(zip(columns, program.layouts, strict=True)):
        outside = column[(column < 0) | (column >= layout.num_embeddings)]
        if len(outside):
            where = f" of {program.names[place]}" if program.names else ""
            raise IndexError(f"ids{where} must lie in [0, {layout.num_embeddings}), got {int(outside[0])}.")


# -- backward ----------------------------------------------------------------------------------------------------------


def dense_gradients(kept: Kept, grad: Tensor, needed: Sequence[bool]) -> list[Tensor | None]:
    """As large as the codebooks."""
    tables = [
        torch.zeros(shape, dtype=kept.sums, device="cpu") if need else None
        for shape, need in zip(kept.program.shapes, needed, strict=True)
    ]
    _scatter(kept, grad, kept.rows, tables)
    return tables if kept.dtype is kept.sums else [table if table is None else table.to(kept.dtype) for table in tables]


def sparse_gradients(kept: Kept, grad: Tensor, needed: Sequence[bool]) -> list[Tensor | None]:
    """Coalesced: the rows that were used are numbered, and gradients summed in a table of those rows alone."""
    starts, _ = row_starts(kept.program, kept.counts)
    names = np.empty_like(kept.rows)
    used: list[Tensor | None] = [None] * len(needed)

    def find(place: int) -> None:
        if needed[place]:
            layout = kept.program.layouts[place]
            used[place] = _used_rows(kept.rows, int(starts[place]), kept.counts[place], layout, names)

    if len(names) >= PARALLEL_SLOTS:
        parallel_for(find, len(needed))
    else:
        for place in range(len(needed)):
            find(place)
    tables = [
        None if rows is None else torch.zeros(len(rows), width, dtype=kept.sums, device="cpu")
        for rows, (_, width) in zip(used, kept.program.shapes, strict=True)
    ]
    _scatter(kept, grad, names, tables)
    return [
        None if rows is None or table is None else _coalesced(rows, table.to(kept.dtype), shape)
        for rows, table, shape in zip(used, tables, kept.program.shapes, strict=True)
    ]


def _coalesced(rows: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    return torch.sparse_coo_tensor(rows.unsqueeze(0), values, shape, check_invariants=False, is_coalesced=True)


def _used_rows(rows: Array, start: int, count: int, layout: Layout, names: Array) -> Tensor:
    """The rows that a feature used, in order; `names` gets the place of each among them."""
    num_rows, num_slots = layout.num_rows, layout.num_slots
    if num_rows > SPARSEST * count * num_slots:
        return _sort_rows(rows, start, count, num_slots, names)
    bits = np.zeros(-(-num_rows // 64), np.uint64)
    ranks = np.empty(len(bits), np.uint64)
    used = torch.empty(renumber(rows, start, count, num_slots, bits, ranks, names), dtype=torch.int64, device="cpu")
    list_rows(bits, used.numpy())
    return used


def _sort_rows(rows: Array, start: int, count: int, num_slots: int, names: Array) -> Tensor:
    """The same by sorting, for the few ids of a batch in a table of millions of rows."""
    by_id = _by_id(rows, start, count, num_slots)
    counted = by_id[:, 0] >= 0
    used, places = np.unique(by_id[counted], return_inverse=True)
    numbered = np.full((-(-count // BLOCK) * BLOCK, num_slots), -1, np.int32)
    numbered[:count][counted] = places.reshape(-1, num_slots)
    names[start : start + numbered.size] = numbered.reshape(-1, BLOCK, num_slots).transpose(0, 2, 1).reshape(-1)
    return torch.from_numpy(used.astype(np.int64))


def _scatter(kept: Kept, grad: Tensor, rows: Array, tables: Sequence[Tensor | None]) -> None:
    """Sum gradients into the rows of `tables`."""
    addresses = np.array([0 if table is None else table.data_ptr() for table in tables], dtype=np.int64)
    starts, _ = row_starts(kept.program, kept.counts)
    grad = grad.to(kept.sums).contiguous()
    stride, total, kind = kept.program.dim * grad.itemsize, grad.itemsize, KINDS[grad.dtype]
    offsets, weights = (_NONE, _NO_WEIGHTS) if kept.bags is None else kept.bags.arrays()

    def run(share: Share) -> None:
        for form, features, units in share:
            wanted = units[addresses[features[units[:, loops.FEATURE], loops.PLACE]] != 0]
            if kept.bags is None:
                loops.scatter(
                    features, wanted, kept.batch, rows, starts, addresses, grad.data_ptr(), stride, total, kind, form
                )
            else:
                loops.scatter_bags(
                    features, wanted, kept.batch, offsets, weights, rows, starts, addresses, grad.data_ptr(), stride,
                    total, kind, form,
                )  # fmt: skip

    shares = kept.program.shares(torch.get_num_threads() if len(rows) >= PARALLEL_SLOTS else 1)
    if len(shares) == 1:
        run(shares[0])
    else:
        parallel_for(lambda index: run(shares[index]), len(shares))


def _differentiable_gradients(kept: Kept, grad: Tensor, needed: Sequence[bool]) -> list[Tensor | None]:
    """The gradients in plain torch, as functions of `grad`."""
    pieces = torch.split(grad, [layout.dim for layout in kept.program.layouts], dim=1)
    return [
        _transposed_product(kept, place, piece) if need else None
        for place, (piece, need) in enumerate(zip(pieces, needed, strict=True))
    ]


def _transposed_product(kept: Kept, place: int, vectors: Tensor) -> Tensor:
    """`Hᵀ · vectors` for the rows that were kept of one feature."""
    layout, count = kept.program.layouts[place], kept.counts[place]
    starts, _ = row_starts(kept.program, kept.counts)
    rows = torch.from_numpy(_by_id(kept.rows, int(starts[place]), count, layout.num_slots).astype(np.int64))
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


def _by_id(rows: Array, start: int, count: int, num_slots: int) -> Array:
    """The rows of one feature out of their blocks: `(count, num_slots)`."""
    size = -(-count // BLOCK) * BLOCK * num_slots
    blocks = rows[start : start + size].reshape(-1, num_slots, BLOCK)
    return blocks.transpose(0, 2, 1).reshape(-1, num_slots)[:count]
