"""All methods by name, and the one function that makes any of them from a budget."""

from collections.abc import Mapping
from typing import Any

import torch

from cce.budget import Budget, check_given, make_budget
from cce.checks import check_choice, check_range
from cce.embeddings.base import MAX_IDS, Embedding, check_num_embeddings
from cce.embeddings.cce import CCEEmbedding
from cce.embeddings.clustered import ClusteredEmbedding
from cce.embeddings.colliding import CollidingEmbedding
from cce.embeddings.compositional import (
    CompositionalConcatEmbedding,
    CompositionalProductEmbedding,
    CompositionalSumEmbedding,
)
from cce.embeddings.dhe import DeepHashEmbedding
from cce.embeddings.full import FullEmbedding, HashingTrickEmbedding
from cce.embeddings.hash_embedding import HashEmbedding
from cce.embeddings.initialization import check_placement
from cce.embeddings.low_rank import LowRankEmbedding
from cce.embeddings.mixed_dimension import MixedDimensionEmbedding
from cce.embeddings.product_quantized import ProductQuantizedEmbedding
from cce.embeddings.quantized import QuantizedEmbedding
from cce.embeddings.robe import RobeEmbedding
from cce.embeddings.sizing import TableRequest
from cce.embeddings.tensor_train import TensorTrainEmbedding
from cce.footprint import Footprint
from cce.indexing import make_generator

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
        LowRankEmbedding,
        MixedDimensionEmbedding,
        ProductQuantizedEmbedding,
        QuantizedEmbedding,
        ClusteredEmbedding,
        CCEEmbedding,
    )
}


def list_methods() -> list[str]:
    """The names that `create_embedding` knows."""
    return list(METHODS)


def register_method(kind: type[Embedding]) -> type[Embedding]:
    """Add a table of your own under its `method`, wherever a name of a method goes; usable as a decorator.

    `cce.testing.EmbeddingContract` says whether it is ready for that.
    """
    if not (isinstance(kind, type) and issubclass(kind, Embedding)):
        raise TypeError(f"a method must be a subclass of cce.embeddings.Embedding, got {kind!r}.")
    name = getattr(kind, "method", None)
    if not isinstance(name, str) or not name:
        raise ValueError(f"method of {kind.__name__} must be a word, its name in the registry, got {name!r}.")
    if name in METHODS:
        raise ValueError(f"method of {kind.__name__} must be new, got {name!r}, which is {METHODS[name].__name__}.")
    METHODS[name] = kind
    return kind


def create_embedding(
    method: str | type[Embedding],
    num_embeddings: int | None,
    embedding_dim: int,
    *,
    budget: Budget | None = None,
    cap: int | None = None,
    num_params: int | None = None,
    nbytes: int | None = None,
    compression: float | None = None,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    **options: Any,
) -> Embedding:
    """A table within a budget: of at most `num_params` parameters or `nbytes` bytes, or `compression` times fewer.

    num_embeddings: how many ids there are; None: any 64-bit integers are ids. The budget of a `cce` table is then that
        of its int8 rows, the most that there ever are.

    `method` is a name of `list_methods`, or a class of your own. A budget that holds the full table gives the full
    table, except methods that have no other size; see `Budget` for what each of them means. `options` are the
    arguments of the method's class (`ClusteredEmbedding` and so on), and are checked against it. Randomness comes from
    `generator`, or from a new one with `seed`, or from torch's global one.
    """
    kind = find_method(method)
    check_num_embeddings(num_embeddings, kind)
    check_range("embedding_dim", embedding_dim, 1, MAX_IDS)
    check_placement(device, dtype)
    limit = make_budget(budget, cap, num_params, nbytes, compression)
    check_given(limit, kind.method)
    itemsize = (dtype or torch.get_default_dtype()).itemsize
    request = TableRequest(kind, num_embeddings, embedding_dim, options, itemsize=itemsize)
    common = {"generator": make_generator(seed, generator), "device": device, "dtype": dtype}
    return make_table(request.for_budget(limit), options, common, kind=kind)


def find_method(method: str | type[Embedding]) -> type[Embedding]:
    """The class of a method: by its name, or a class itself."""
    if isinstance(method, type) and issubclass(method, Embedding):
        return method
    check_choice("method", method, METHODS)
    return METHODS[method]


def make_table(
    footprint: Footprint,
    options: Mapping[str, Any],
    common: Mapping[str, Any],
    *,
    kind: type[Embedding] | None = None,
) -> Embedding:
    """The table of a footprint; `options` are of its method, `common` are arguments that the full table has as well.

    kind: the class of the method, if it is not among ours; a footprint of the full table gives the full table.
    """
    if footprint.method == FullEmbedding.method:
        kind, kept = FullEmbedding, ("padding_idx", "sparse", "start_scale")
        options = {name: options[name] for name in kept if name in options}
    arguments = dict(options) | footprint.sizes | dict(common)
    kind = kind or METHODS[footprint.method]
    return kind(footprint.num_embeddings or None, footprint.embedding_dim, **arguments)
