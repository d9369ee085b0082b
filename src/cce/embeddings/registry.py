"""All methods by name, and the one function that makes any of them from a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cce.checks import check_choice, check_number, check_range
from cce.embeddings.base import MAX_IDS, Embedding
from cce.embeddings.ce_concat import CompositionalConcatEmbedding
from cce.embeddings.ce_mult import CompositionalProductEmbedding
from cce.embeddings.ce_sum import CompositionalSumEmbedding
from cce.embeddings.clustered import ClusteredEmbedding
from cce.embeddings.colliding import CollidingEmbedding
from cce.embeddings.dhe import DeepHashEmbedding
from cce.embeddings.full import FullEmbedding
from cce.embeddings.hash_embedding import HashEmbedding
from cce.embeddings.hashing_trick import HashingTrickEmbedding
from cce.embeddings.mixed_dimension import MixedDimensionEmbedding
from cce.embeddings.product_quantized import ProductQuantizedEmbedding
from cce.embeddings.robe import RobeEmbedding
from cce.embeddings.tensor_train import TensorTrainEmbedding
from cce.indexing import make_generator

if TYPE_CHECKING:
    from collections.abc import Mapping

METHODS: dict[str, type[Embedding]] = {
    kind.method: kind
    for kind in (
        FullEmbedding,
        HashingTrickEmbedding,
        HashEmbedding,
        CompositionalConcatEmbedding,
        CompositionalSumEmbedding,
        CompositionalProductEmbedding,
        RobeEmbedding,
        DeepHashEmbedding,
        TensorTrainEmbedding,
        CollidingEmbedding,
        MixedDimensionEmbedding,
        ProductQuantizedEmbedding,
        ClusteredEmbedding,
    )
}


def list_methods() -> list[str]:
    """The names that `create_embedding` knows."""
    return list(METHODS)


def create_embedding(
    method: str,
    num_embeddings: int,
    embedding_dim: int,
    *,
    num_params: int | None = None,
    compression: float | None = None,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    **options: Any,
) -> Embedding:
    """A table of at most `num_params` trainable numbers, or `compression` times fewer than the full table has.

    A budget that holds the full table gives the full table. `options` are the arguments of the method's class
    (`cce.ClusteredEmbedding` and so on), and are checked against it. Randomness comes from `generator`, or from a new
    one with `seed`, or from torch's global one.
    """
    check_choice("method", method, METHODS)
    kind = METHODS[method]
    kind.complete_options(options)
    check_placement(device, dtype)
    num_params = resolve_budget(num_embeddings, embedding_dim, num_params, compression, default_full=method == "full")
    if num_params >= num_embeddings * embedding_dim:
        kind, options = FullEmbedding, _common(options)
    options["generator"] = make_generator(seed, generator)
    return kind.from_budget(num_embeddings, embedding_dim, num_params=num_params, **options).to(device, dtype)


def resolve_budget(
    num_embeddings: int,
    embedding_dim: int,
    num_params: int | None,
    compression: float | None,
    *,
    default_full: bool = False,
) -> int:
    """The budget in trainable numbers, from either way to say it."""
    check_range("num_embeddings", num_embeddings, 1, MAX_IDS)
    check_range("embedding_dim", embedding_dim, 1, MAX_IDS)
    if (num_params is None) == (compression is None):
        if default_full and num_params is None:
            return num_embeddings * embedding_dim
        raise ValueError(f"give one of num_params and compression, got {num_params=} and {compression=}.")
    if num_params is not None:
        check_range("num_params", num_params, 1, MAX_IDS)
        return num_params
    assert compression is not None
    check_number("compression", compression, 1)
    return max(1, int(num_embeddings * embedding_dim / compression))


def _common(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in ("padding_idx", "sparse") if name in options}


def check_placement(device: torch.device | str | None, dtype: torch.dtype | None) -> None:
    """Reject a device that is not there, and a dtype that cannot be trained."""
    if device is not None:
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError, TypeError):
            raise ValueError(f"device must be one that torch finds here, such as 'cpu', got {device!r}.") from None
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(f"dtype must be a floating-point torch.dtype such as torch.float32, got {dtype!r}.")
