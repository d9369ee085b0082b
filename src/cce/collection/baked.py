"""`BakedCollection`: what `EmbeddingCollection` is, for rows that hold pointers; and trained models, made to take them.

A model that takes pointers holds codebooks and no table of pointers. Its vectors are those of the ids, to the bit.
"""

from __future__ import annotations

import copy
import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from cce.checks import check_divides, check_type
from cce.collection.bags import check_bags
from cce.collection.names import TableDict
from cce.collection.tables import EmbeddingCollection
from cce.embeddings import BakedEmbedding, Embedding, FullEmbedding, LinearEmbedding, StartScale
from cce.indexing import LearnedRows, blocks, make_generator
from cce.kernels import Bags, Lookup
from cce.schema import Feature, Pointers, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

CHECKSUM_IDS = 1 << 16  # at a time


class BakedCollection(nn.Module):
    """Tables of `features`: the codebooks of those that have pointers, and full tables of the others.

    Ids `(batch, id_columns)` give vectors `(batch, features, embedding_dim)`: a feature without pointers has a column
    of ids, and one with pointers a column for each of its words. Bags come as `ids` `(n)` with `offsets`
    `(id_columns · batch + 1)`, one column after the other.
    """

    def __init__(
        self,
        features: Sequence[Feature],
        embedding_dim: int,
        *,
        pooling: Literal["sum", "mean"] = "sum",
        sparse: bool = False,
        start_scale: StartScale = "uniform",
        seed: int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.features = {feature.name: feature.num_embeddings for feature in features}
        self.embedding_dim, self.pooling = embedding_dim, pooling
        self.num_columns = sum(len(feature.id_columns) for feature in features)
        options: dict[str, Any] = {"sparse": sparse, "start_scale": start_scale, "generator": make_generator(seed)}
        self.tables = TableDict({feature.name: _make_table(feature, embedding_dim, options) for feature in features})
        self._lookup: Lookup | None = None
        self.to(dtype=dtype)

    @property
    def num_features(self) -> int:
        """Vectors of a row."""
        return len(self.features)

    def forward(self, ids: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """Vectors `(batch, features, embedding_dim)`."""
        check_type("ids", ids, Tensor, "a Tensor")
        if offsets is not None:
            return self._bags(ids, offsets, per_sample_weights)
        if ids.dim() != 2 or ids.shape[1] != self.num_columns:
            raise ValueError(f"ids must have shape (batch, {self.num_columns}), as baked, got {tuple(ids.shape)}.")
        return self._find_lookup()(ids, shape=(len(ids), self.num_features, self.embedding_dim))

    def _bags(self, ids: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        batch = check_bags(ids, offsets, weights, self.num_columns)
        if self.pooling == "mean":
            if weights is not None:
                raise ValueError("per_sample_weights need pooling='sum', got pooling='mean'.")
            sizes = offsets.diff()
            weights = torch.repeat_interleave(sizes.clamp(min=1).double().reciprocal(), sizes)
        bags = Bags(offsets.long(), batch, weights)
        return self._find_lookup()(ids.contiguous(), bags=bags, shape=(batch, self.num_features, self.embedding_dim))

    def _find_lookup(self) -> Lookup:
        """One for all words and full tables: a feature's words lie side by side, as pieces of its vector do."""
        if self._lookup is None:
            found = [
                (f"feature {name!r}", table)
                for name, owner in self.tables.items()
                for table in (owner.word_tables() if isinstance(owner, BakedEmbedding) else [owner])
            ]
            self._lookup = Lookup([table for _, table in found], [name for name, _ in found])  # type: ignore[misc]
        return self._lookup

    def __getstate__(self) -> dict[str, Any]:
        """Drop the lookup: a copy builds its own, with other addresses."""
        return self.__dict__ | {"_lookup": None}


def _make_table(feature: Feature, embedding_dim: int, options: dict[str, Any]) -> Embedding:
    if feature.pointers is None:
        return FullEmbedding(feature.num_embeddings, embedding_dim, **options)
    check_divides("num_columns of pointers", feature.pointers.num_columns, "embedding_dim", embedding_dim)
    return BakedEmbedding(feature.num_embeddings, embedding_dim, pointers=feature.pointers, **options)


# -- baking ------------------------------------------------------------------------------------------------------------


def bake_schema(model: nn.Module, schema: Schema) -> Schema:
    """`schema`, which `model` was trained on, with the pointers of all features whose tables learn them."""
    tables = _find_tables(model)
    found = {name: _find_pointers(name, table) for name, table in tables.tables.items()}  # type: ignore[arg-type]
    if not any(found.values()):
        raise ValueError(f"a table of the model must learn pointers to be baked, got {_kinds(tables)}.")
    return replace(schema, features=tuple(replace(each, pointers=found[each.name]) for each in schema.features))


@torch.no_grad()
def bake_model(model: nn.Module, schema: Schema) -> nn.Module:
    """A copy of `model` that takes the rows of a baked data set; one that was baked with other pointers is rejected."""
    tables, wanted = _find_tables(model), bake_schema(model, schema.with_ids)
    for ours, theirs in zip(wanted.features, schema.features, strict=True):
        if ours.pointers != theirs.pointers:
            raise ValueError(
                f"data must be baked with the pointers of the run, got others for feature {ours.name!r}: bake it again."
            )
    is_sparse = any(table.sparse for table in tables.tables.values())
    options: dict[str, Any] = {"pooling": tables.pooling, "sparse": is_sparse, "seed": 0}  # random values are replaced
    baked = BakedCollection(schema.features, tables.embedding_dim, **options).train(tables.training)
    for name, table in tables.tables.items():
        _take_codebook(baked.tables[name], table)  # type: ignore[arg-type]
    baked._forward_hooks.update(tables._forward_hooks)  # such as the one that gives models float32
    copied: nn.Module = copy.deepcopy(model, {id(tables): baked})
    return copied


def _take_codebook(new: Embedding, table: LinearEmbedding) -> None:
    codebook = table.codebook.detach()
    new.to(codebook.device, codebook.dtype)
    if isinstance(new, BakedEmbedding):
        new.take_codebook(codebook)
    else:
        new.load_state_dict(table.state_dict())


def find_words(model: nn.Module, schema: Schema, index: int, ids: Tensor) -> Tensor:
    """What a baked data set of this schema holds in place of `ids` `(n)` of a feature: words `(n, num_words)`."""
    feature = schema.features[index]
    table: LinearEmbedding = _find_tables(model).tables[feature.name]  # type: ignore[assignment]
    return ids.unsqueeze(1) if feature.pointers is None else _pack(table, feature.pointers, ids)


def _find_tables(model: nn.Module) -> EmbeddingCollection:
    found = [module for module in model.modules() if isinstance(module, EmbeddingCollection)]
    if len(found) != 1 or found[0].unified:
        what = "a unified one" if len(found) == 1 else f"{len(found)} of them"
        raise ValueError(
            f"model must have one EmbeddingCollection with a table for each feature to be baked, got {what}."
        )
    return found[0]


def _find_pointers(name: str, table: Embedding) -> Pointers | None:
    """The pointers of a table that learns them; None for a full table."""
    if isinstance(table, FullEmbedding):
        return None
    sources = table.sources()[2] if isinstance(table, LinearEmbedding) and not table.is_weighted else []
    learned = [source for source in sources if isinstance(source, LearnedRows)]
    if not learned or table.padding_idx is not None:
        got = f"method {table.method!r} with padding_idx={table.padding_idx}"
        raise ValueError(f"table of feature {name!r} must be full or learn pointers, without padding, got {got}.")
    assert isinstance(table, LinearEmbedding)
    columns, terms, _ = table.sources()
    pointers = Pointers(columns, terms, learned[0].assignments.num_rows, "")
    return replace(pointers, checksum=_checksum(table, pointers))


def _checksum(table: LinearEmbedding, pointers: Pointers) -> str:
    """SHA-256 of the words of all ids."""
    digest = hashlib.sha256()
    for ids in blocks(table.num_embeddings, CHECKSUM_IDS):
        digest.update(_pack(table, pointers, ids).numpy().tobytes())
    return digest.hexdigest()


def _pack(table: LinearEmbedding, pointers: Pointers, ids: Tensor) -> Tensor:
    """Words `(n, num_words)` of ids `(n)`, int64 and on the CPU."""
    rows, _ = table.lookup(ids.to(table.codebook.device))
    num_slots = pointers.num_columns * pointers.num_terms
    inside = rows.cpu().view(-1, num_slots) - torch.arange(num_slots) * pointers.num_rows  # the table of each slot
    words = torch.split(inside, [pointers.num_terms * n for n in pointers.columns_of_words], dim=1)
    return torch.stack([(part << torch.arange(part.shape[1]) * pointers.bits).sum(1) for part in words], dim=1)


def _kinds(tables: EmbeddingCollection) -> str:
    return ", ".join(sorted({f"method {table.method!r}" for table in tables.tables.values()}))
