"""`gather_sum` on a GPU: the same product `H · M`, written in Triton (Tillet, Kung and Cox, 2019).

The sum is linear in the codebook, in the weights and in the gradient that comes back, so three functions are each
other's derivatives: `sum_rows`, `codebook_gradient`, `weights_gradient`. `autograd` joins them. A negative row
means "nothing". Sums are float32, or float64 for float64.

This is the one file that imports Triton, when the first kernel runs. In the kernels a *bag* is one column of one id:
its terms are summed to one vector of `width` numbers.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    import triton.language as tl  # noqa: TC004  (kernels look it up by this name; `_compile` puts it there)
    from torch import Tensor

SUM_TYPES = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float32,
    torch.float64: torch.float64,
}
TILE = 1024  # numbers that one program sums at a time
LARGEST_WIDTH = 128  # of a tile; wider rows take several programs
OPTIONS = {"enable_fp_fusion": False}  # products are rounded before they are added, as by torch


def runs_on(codebook: Tensor) -> bool:
    """Whether the kernels run where `codebook` is: on CUDA with Triton installed, or anywhere in its interpreter."""
    is_there = codebook.is_cuda or os.environ.get("TRITON_INTERPRET") == "1"
    return is_there and codebook.dtype in SUM_TYPES and _triton_is_installed()


# -- three functions, each the derivative of the others ----------------------------------------------------------------


def sum_rows(codebook: Tensor, rows: Tensor, weights: Tensor | None) -> Tensor:
    """Sum the rows of each column over its terms, and set the columns side by side.

    codebook: (num_rows, width);  rows and weights: (batch, columns, terms)  →  (batch, columns · width)

    A row beyond the codebook makes its vector NaN: to raise an error, the CPU would have to wait for the GPU.
    """
    batch, columns, terms = rows.shape
    num_rows, width = codebook.shape
    vectors = codebook.new_empty(batch, columns * width)
    grid, blocks = _tiles(batch * columns, width)
    tensors = (vectors, codebook.contiguous(), rows.contiguous(), _contiguous(weights))
    _launch(_sum_kernel, grid, *tensors, batch * columns, num_rows, terms, width, double=_is_double(codebook), **blocks)
    return vectors


def codebook_gradient(
    upstream: Tensor, rows: Tensor, weights: Tensor | None, *, shape: tuple[int, int], sparse: bool = False
) -> Tensor:
    """Give the gradient of a codebook of this shape, from that of the vectors; coalesced where it is sparse.

    The dense gradient is summed by atomic additions, in any order. Sparse gradients, and all gradients under
    `torch.use_deterministic_algorithms`, sort the rows first and have the same bits every time.
    """
    if sparse or torch.are_deterministic_algorithms_enabled():
        named, sums = _sum_by_row(upstream, rows, weights, shape)
        if sparse:
            return torch.sparse_coo_tensor(named[None], sums, shape, is_coalesced=True, check_invariants=False)
        return upstream.new_zeros(shape).index_copy_(0, named, sums)
    batch, columns, terms = rows.shape
    gradient = upstream.new_zeros(shape, dtype=SUM_TYPES[upstream.dtype])
    grid, blocks = _tiles(batch * columns, shape[1])
    tensors = (gradient, upstream.contiguous(), rows.contiguous(), _contiguous(weights))
    _launch(_add_kernel, grid, *tensors, batch * columns, shape[0], terms, shape[1], **blocks)
    return gradient.to(upstream.dtype)


def weights_gradient(upstream: Tensor, codebook: Tensor, rows: Tensor) -> Tensor:
    """Give the gradient of the weights `(batch, columns, terms)`: inner products of rows and `upstream`."""
    batch, columns, terms = rows.shape
    num_rows, width = codebook.shape
    gradient = upstream.new_empty(rows.shape)
    (num_blocks, _), blocks = _tiles(batch * columns, width)
    tensors = (gradient, upstream.contiguous(), codebook.contiguous(), rows.contiguous())
    numbers = (batch * columns, num_rows, terms, width)
    _launch(_dot_kernel, (num_blocks, 1), *tensors, *numbers, double=_is_double(codebook), **blocks)
    return gradient


# -- kernels: annotations are part of Triton's language ----------------------------------------------------------------


def _sum_kernel(
    vectors: tl.tensor,  # (num_bags, width)
    codebook: tl.tensor,  # (num_rows, width)
    rows: tl.tensor,  # (num_bags, terms)
    weights: tl.tensor,  # (num_bags, terms) or None
    num_bags: int,
    num_rows: int,
    terms: int,
    width: int,
    double: tl.constexpr,
    block_bags: tl.constexpr,
    block_width: tl.constexpr,
) -> None:
    bags = tl.program_id(0).to(tl.int64) * block_bags + tl.arange(0, block_bags)
    places = tl.program_id(1) * block_width + tl.arange(0, block_width)
    total = tl.zeros([block_bags, block_width], dtype=tl.float64 if double else tl.float32)
    for term in range(terms):
        row = tl.load(rows + bags * terms + term, mask=bags < num_bags, other=-1).to(tl.int64)
        mask = ((row >= 0) & (row < num_rows))[:, None] & (places < width)[None, :]
        piece = tl.load(codebook + row[:, None] * width + places[None, :], mask=mask, other=0).to(total.dtype)
        piece = tl.where((row < num_rows)[:, None], piece, float("nan"))
        if weights is not None:
            weight = tl.load(weights + bags * terms + term, mask=(bags < num_bags) & (row >= 0), other=0)
            piece = piece * weight.to(total.dtype)[:, None]
        total += piece
    mask = (bags < num_bags)[:, None] & (places < width)[None, :]
    tl.store(vectors + bags[:, None] * width + places[None, :], total, mask=mask)


def _add_kernel(
    gradient: tl.tensor,  # (num_rows, width), of the type of the sums
    upstream: tl.tensor,  # (num_bags, width)
    rows: tl.tensor,  # (num_bags, terms)
    weights: tl.tensor,  # (num_bags, terms) or None
    num_bags: int,
    num_rows: int,
    terms: int,
    width: int,
    block_bags: tl.constexpr,
    block_width: tl.constexpr,
) -> None:
    bags = tl.program_id(0).to(tl.int64) * block_bags + tl.arange(0, block_bags)
    places = tl.program_id(1) * block_width + tl.arange(0, block_width)
    mask = (bags < num_bags)[:, None] & (places < width)[None, :]
    whole = tl.load(upstream + bags[:, None] * width + places[None, :], mask=mask, other=0)
    whole = whole.to(gradient.dtype.element_ty)
    for term in range(terms):
        row = tl.load(rows + bags * terms + term, mask=bags < num_bags, other=-1).to(tl.int64)
        piece = whole
        if weights is not None:
            weight = tl.load(weights + bags * terms + term, mask=bags < num_bags, other=0)
            piece = whole * weight.to(whole.dtype)[:, None]
        found = mask & ((row >= 0) & (row < num_rows))[:, None]
        tl.atomic_add(gradient + row[:, None] * width + places[None, :], piece, mask=found, sem="relaxed")


def _dot_kernel(
    gradient: tl.tensor,  # (num_bags, terms)
    upstream: tl.tensor,  # (num_bags, width)
    codebook: tl.tensor,  # (num_rows, width)
    rows: tl.tensor,  # (num_bags, terms)
    num_bags: int,
    num_rows: int,
    terms: int,
    width: int,
    double: tl.constexpr,
    block_bags: tl.constexpr,
    block_width: tl.constexpr,
) -> None:
    bags = tl.program_id(0).to(tl.int64) * block_bags + tl.arange(0, block_bags)
    for term in range(terms):
        row = tl.load(rows + bags * terms + term, mask=bags < num_bags, other=-1).to(tl.int64)
        found = (row >= 0) & (row < num_rows)
        total = tl.zeros([block_bags, block_width], dtype=tl.float64 if double else tl.float32)
        for start in range(0, width, block_width):
            places = start + tl.arange(0, block_width)
            mask = found[:, None] & (places < width)[None, :]
            piece = tl.load(codebook + row[:, None] * width + places[None, :], mask=mask, other=0).to(total.dtype)
            slope = tl.load(upstream + bags[:, None] * width + places[None, :], mask=mask, other=0).to(total.dtype)
            total += piece * slope
        tl.store(gradient + bags * terms + term, tl.sum(total, axis=1), mask=bags < num_bags)


def _segment_kernel(
    sums: tl.tensor,  # (segments, width)
    upstream: tl.tensor,  # (num_bags, width)
    weights: tl.tensor,  # (num_bags, terms) or None
    order: tl.tensor,  # places in (num_bags, terms), sorted by the row they name
    ends: tl.tensor,  # (segments), where in `order` each row ends
    terms: int,
    width: int,
    double: tl.constexpr,
    block_bags: tl.constexpr,
    block_width: tl.constexpr,
) -> None:
    segment = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * block_width + tl.arange(0, block_width)
    begin = tl.load(ends + segment - 1, mask=segment > 0, other=0)
    end = tl.load(ends + segment)
    total = tl.zeros([block_bags, block_width], dtype=tl.float64 if double else tl.float32)
    for start in range(begin, end, block_bags):
        entries = start + tl.arange(0, block_bags)
        entry = tl.load(order + entries, mask=entries < end, other=0)
        mask = (entries < end)[:, None] & (places < width)[None, :]
        piece = tl.load(upstream + (entry // terms)[:, None] * width + places[None, :], mask=mask, other=0)
        piece = piece.to(total.dtype)
        if weights is not None:
            weight = tl.load(weights + entry, mask=entries < end, other=0)
            piece = piece * weight.to(total.dtype)[:, None]
        total += piece
    tl.store(sums + segment * width + places, tl.sum(total, axis=0), mask=places < width)


# -- around the kernels ------------------------------------------------------------------------------------------------


def _sum_by_row(
    upstream: Tensor, rows: Tensor, weights: Tensor | None, shape: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Rows that are named, ascending, and the sum of what each receives: no two programs write to the same place."""
    num_rows, width = shape
    ordered, order = rows.flatten().sort(stable=True)
    first, last = torch.searchsorted(ordered, ordered.new_tensor([0, num_rows])).tolist()  # the GPU is waited for
    named, counts = ordered[first:last].unique_consecutive(return_counts=True)  # type: ignore[no-untyped-call]
    sums = upstream.new_empty(len(named), width)
    (_, num_blocks), blocks = _tiles(1, width)
    tensors = (sums, upstream.contiguous(), _contiguous(weights), order[first:last], counts.cumsum(0))
    grid = (len(named), num_blocks)
    _launch(_segment_kernel, grid, *tensors, rows.shape[2], width, double=_is_double(upstream), **blocks)
    return named.long(), sums


def _tiles(num_bags: int, width: int) -> tuple[tuple[int, int], dict[str, int]]:
    """The grid of programs, and how many bags and numbers of each one program takes: powers of two, as Triton asks."""
    block_width = min(LARGEST_WIDTH, 1 << (width - 1).bit_length())
    block_bags = TILE // block_width
    grid = (-(-num_bags // block_bags), -(-width // block_width))
    return grid, {"block_bags": block_bags, "block_width": block_width}


def _launch(
    kernel: Callable[..., None], grid: tuple[int, int], *arguments: Tensor | int | None, **constants: int
) -> None:
    """Run a kernel on the device of its first argument, unless there is nothing to do."""
    if 0 in grid:
        return
    with torch.cuda.device_of(arguments[0]):  # type: ignore[no-untyped-call]
        _compile(kernel)[grid](*arguments, **constants, **OPTIONS)


@functools.cache
def _compile(kernel: Callable[..., None]) -> Any:
    """Hand a kernel to Triton, which compiles it for the types that it is called with."""
    import triton

    globals()["tl"] = triton.language
    return triton.jit(kernel)


@functools.cache
def _triton_is_installed() -> bool:
    return importlib.util.find_spec("triton") is not None


def _contiguous(weights: Tensor | None) -> Tensor | None:
    return None if weights is None else weights.contiguous()


def _is_double(tensor: Tensor) -> bool:
    return SUM_TYPES[tensor.dtype] is torch.float64
