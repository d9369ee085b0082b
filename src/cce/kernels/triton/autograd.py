"""`gather_sum` by Triton with its derivatives of every order: three functions that call each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch.autograd import Function

from cce.kernels.triton.gather_sum import SUM_TYPES, codebook_gradient, sum_rows, weights_gradient

if TYPE_CHECKING:
    from torch import Tensor


def triton_gather_sum(codebook: Tensor, rows: Tensor, weights: Tensor | None = None, *, sparse: bool = False) -> Tensor:
    """Give what `gather_sum` gives; a negative row adds nothing.

    codebook: (num_rows, width);  rows and weights: (batch, columns, terms)  →  (batch, columns · width)
    """
    _check(codebook, rows, weights)
    if weights is not None:
        weights = weights.to(codebook.dtype)
    return _to_vectors(codebook, rows, weights, sparse=sparse)


class _Vectors(Function):
    """The vectors, from the codebook and the weights."""

    @staticmethod
    def forward(ctx: Any, codebook: Tensor, rows: Tensor, weights: Tensor | None, sparse: bool) -> Tensor:  # noqa: FBT001
        # only the gradient of weights needs the codebook: without it, the codebook may change before backward
        ctx.save_for_backward(codebook if ctx.needs_input_grad[2] else None, rows, weights)
        ctx.shape, ctx.sparse = codebook.shape, sparse
        return sum_rows(codebook, rows, weights)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        codebook, rows, weights = ctx.saved_tensors
        needs_codebook, _, needs_weights, _ = ctx.needs_input_grad
        shape, sparse = ctx.shape, ctx.sparse
        to_codebook = _to_codebook(upstream, rows, weights, shape=shape, sparse=sparse) if needs_codebook else None
        to_weights = _to_weights(upstream, codebook, rows) if needs_weights else None
        return to_codebook, None, to_weights, None


class _CodebookGradient(Function):
    """The gradient of the codebook, from that of the vectors and the weights."""

    @staticmethod
    def forward(
        ctx: Any,
        upstream: Tensor,
        rows: Tensor,
        weights: Tensor | None,
        shape: tuple[int, int],
        sparse: bool,  # noqa: FBT001
    ) -> Tensor:
        ctx.save_for_backward(upstream if ctx.needs_input_grad[2] else None, rows, weights)
        ctx.sparse = sparse
        return codebook_gradient(upstream, rows, weights, shape=shape, sparse=sparse)

    @staticmethod
    def backward(ctx: Any, direction: Tensor) -> Any:
        if ctx.sparse:
            raise NotImplementedError("sparse must be False for second derivatives, got True.")
        upstream, rows, weights = ctx.saved_tensors
        needs_upstream, _, needs_weights, _, _ = ctx.needs_input_grad
        to_upstream = _to_vectors(direction, rows, weights) if needs_upstream else None
        to_weights = _to_weights(upstream, direction, rows) if needs_weights else None
        return to_upstream, None, to_weights, None, None


class _WeightsGradient(Function):
    """The gradient of the weights, from that of the vectors and the codebook."""

    @staticmethod
    def forward(ctx: Any, upstream: Tensor, codebook: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(upstream, codebook, rows)
        return weights_gradient(upstream, codebook, rows)

    @staticmethod
    def backward(ctx: Any, direction: Tensor) -> Any:
        upstream, codebook, rows = ctx.saved_tensors
        needs_upstream, needs_codebook, _ = ctx.needs_input_grad
        to_upstream = _to_vectors(codebook, rows, direction) if needs_upstream else None
        to_codebook = _to_codebook(upstream, rows, direction, shape=codebook.shape) if needs_codebook else None
        return to_upstream, to_codebook, None


def _to_vectors(codebook: Tensor, rows: Tensor, weights: Tensor | None, *, sparse: bool = False) -> Tensor:
    return _apply(_Vectors, codebook, rows, weights, sparse)


def _to_codebook(
    upstream: Tensor, rows: Tensor, weights: Tensor | None, *, shape: tuple[int, ...], sparse: bool = False
) -> Tensor:
    return _apply(_CodebookGradient, upstream, rows, weights, shape, sparse)


def _to_weights(upstream: Tensor, codebook: Tensor, rows: Tensor) -> Tensor:
    return _apply(_WeightsGradient, upstream, codebook, rows)


def _apply(function: type[Function], *arguments: object) -> Tensor:
    return cast("Tensor", function.apply(*arguments))  # type: ignore[no-untyped-call]


def _check(codebook: Tensor, rows: Tensor, weights: Tensor | None) -> None:
    if codebook.dtype not in SUM_TYPES:
        raise TypeError(f"codebook must be float16, bfloat16, float32 or float64, got {codebook.dtype}.")
    if codebook.dim() != 2:
        raise ValueError(f"codebook must have the shape (num_rows, width), got {tuple(codebook.shape)}.")
    if rows.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"rows must be int32 or int64, got {rows.dtype}.")
    if rows.dim() != 3:
        raise ValueError(f"rows must have the shape (batch, columns, terms), got {tuple(rows.shape)}.")
    if weights is not None and weights.shape != rows.shape:
        raise ValueError(f"weights must have the shape of rows, {tuple(rows.shape)}, got {tuple(weights.shape)}.")
    for name, tensor in (("rows", rows), ("weights", weights)):
        if tensor is not None and tensor.device != codebook.device:
            raise ValueError(f"{name} must be on the device of codebook, {codebook.device}, got {tensor.device}.")
