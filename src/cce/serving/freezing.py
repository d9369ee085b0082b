"""`freeze`: the same model for inference, with nothing that only training needs.

Tables become `FrozenTable`s: no gradients, no counts, packed pointers, codebooks in the precision asked for, helper
tables left out where they add nothing. Ids without pointers stay hashed. All else in the model is copied as it is.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from cce.checks import check_choice, check_type
from cce.collection import EmbeddingCollection, readable_path
from cce.embeddings import (
    CCEEmbedding,
    ClusteredEmbedding,
    CollidingEmbedding,
    CompositionalProductEmbedding,
    DeepHashEmbedding,
    Embedding,
    HashEmbedding,
    HashingTrickEmbedding,
    LinearEmbedding,
    LowRankEmbedding,
    MixedDimensionEmbedding,
    QuantizationAwareEmbedding,
    QuantizedEmbedding,
    TensorTrainEmbedding,
)
from cce.indexing import Assignments, LearnedRows, MultiplyShift, PointerStore, describe
from cce.kernels import Layout
from cce.serving.collection import FrozenCollection
from cce.serving.folding import fold_helpers, has_zero_helpers
from cce.serving.frozen_products import FrozenNetwork, FrozenTensorTrain
from cce.serving.frozen_tables import (
    FrozenBlocks,
    FrozenCodes,
    FrozenRows,
    FrozenTable,
    Importance,
    Signs,
)
from cce.serving.row_sources import copy_source
from cce.serving.stored_rows import CODEBOOKS, Codebook, StoredRows
from cce.text import format_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cce.indexing import RowMap, RowSource

Pointers = Literal["packed", "bytes"]
POINTERS = ("packed", "bytes")
BYTE = 8
Size = tuple[int, int, int | None]


@dataclass(frozen=True)
class FrozenSize:
    """Bytes of a table in training, without gradients and optimizer state, and frozen."""

    name: str
    before: int
    after: int


@dataclass(frozen=True)
class Freezing:
    """What freezing did to each table."""

    tables: tuple[FrozenSize, ...]

    @property
    def before(self) -> int:
        """Bytes of all tables before."""
        return sum(table.before for table in self.tables)

    @property
    def after(self) -> int:
        """Bytes of all tables after."""
        return sum(table.after for table in self.tables)

    def __str__(self) -> str:
        lines = [*self.tables, FrozenSize("all", self.before, self.after)]
        rows = [(size.name, f"{size.before:,}", f"{size.after:,}") for size in lines]
        return format_table(("table", "bytes before", "bytes after"), rows)


def freeze(model: nn.Module, *, codebook: Codebook = "float32", pointers: Pointers = "packed") -> nn.Module:
    """A copy of `model` for inference, on the CPU and in evaluation mode; `print(frozen.freezing)` says what it saves.

    codebook: precision of the rows: "float32", "float16", "bfloat16", or "int8" with a scale for each column. Vectors
        are float32 in any case. A table that is made of integers already stays as it is.
    pointers: "packed", the narrowest of 1, 2, 4, 8, 16 or 32 bits; or "bytes", at least 8 bits each.
    """
    check_choice("codebook", codebook, CODEBOOKS)
    check_choice("pointers", pointers, POINTERS)
    tables = _tables_of(model)
    frozen = {id(table): freeze_table(table, codebook=codebook, pointers=pointers) for table in tables.values()}
    memo: dict[int, nn.Module] = dict(frozen)
    for module in model.modules():
        if isinstance(module, EmbeddingCollection):
            memo[id(module)] = _freeze_collection(module, frozen)
    copied: nn.Module = memo.get(id(model)) or copy.deepcopy(model, memo)
    copied.requires_grad_(requires_grad=False).eval().cpu()
    sizes = [_size(name, table, frozen[id(table)]) for name, table in tables.items()]
    copied.freezing = Freezing(tuple(sizes))  # type: ignore[assignment]
    return copied


def _tables_of(model: nn.Module) -> dict[str, Embedding]:
    check_type("model", model, nn.Module, "a torch.nn.Module")
    tables = {name: module for name, module in model.named_modules() if isinstance(module, Embedding)}
    if not tables:
        raise ValueError(f"model must have tables of cce to freeze, got {type(model).__name__} without any.")
    return tables


def _size(name: str, table: Embedding, frozen: FrozenTable) -> FrozenSize:
    return FrozenSize(readable_path(name) or "(model)", table.nbytes, frozen.nbytes)


def freeze_table(table: Embedding, *, codebook: Codebook = "float32", pointers: Pointers = "packed") -> FrozenTable:
    """One table for inference; see `freeze`."""
    size = (table.num_embeddings, table.embedding_dim, table.padding_idx)
    found = _freeze_rows(table, size, codebook) or _freeze_others(table, size, codebook)
    if found is None:
        raise TypeError(
            f"a table of class {type(table).__name__} cannot be frozen: it is neither linear nor a method of cce."
        )
    if pointers == "bytes":
        _widen(found)
    return found


def _freeze_collection(collection: EmbeddingCollection, frozen: dict[int, FrozenTable]) -> FrozenCollection:
    return FrozenCollection(
        collection.features,
        {name: frozen[id(table)] for name, table in collection.tables.items()},
        pooling=collection.pooling,
        unified=collection.unified,
        padding_idx=collection.padding_idx,
    )


# -- tables of rows ----------------------------------------------------------------------------------------------------


def _freeze_rows(table: Embedding, size: Size, codebook: Codebook) -> FrozenTable | None:
    """Tables whose vectors are made of rows of one codebook."""
    if isinstance(table, CCEEmbedding):
        return _freeze_cce(table, size, codebook)
    if isinstance(table, ClusteredEmbedding):
        return _freeze_clustered(table, size, codebook)
    if isinstance(table, CompositionalProductEmbedding):
        layout = table.layout()
        return _rows(size, table.codebook, layout.sources, codebook, columns=layout.columns, terms=1, product=True)
    if isinstance(table, LinearEmbedding):
        columns, terms, sources = table.sources()
        weights = _weights(table)
        return _rows(size, table.codebook, sources, codebook, columns=columns, terms=terms, weights=weights)
    return None


def _freeze_cce(table: CCEEmbedding, size: Size, codebook: Codebook) -> FrozenTable:
    """Pointers and codebooks, or int8 rows as they are, behind the map of rows."""
    table.rows.compact()
    row_map = copy.deepcopy(table.row_map)
    if not table.is_final:
        values, scale = table.rows.codes[: table.rows.num_rows], torch.tensor([table.rows.scale])
        return FrozenCodes(size, values, scale, [0], num_learned=len(values), seeds=None, bits=BYTE, row_map=row_map)
    store = table.pointers.store
    first_rows = range(0, len(table.codebook), store.num_rows)
    learned = LearnedRows(Assignments.of(store), range(store.num_columns), first_rows)
    return _rows(size, table.codebook, [learned], codebook, columns=store.num_columns, terms=1, row_map=row_map)


def _freeze_clustered(table: ClusteredEmbedding, size: Size, codebook: Codebook) -> FrozenTable:
    columns, terms, sources = table.sources()
    if table.num_helpers and has_zero_helpers(table):
        return _without_helpers(table, size, codebook)
    folded = fold_helpers(table, CODEBOOKS[codebook].itemsize)
    if folded is None:
        return _rows(size, table.codebook, sources, codebook, columns=columns, terms=terms)
    pointers = folded.pointers
    first_rows = range(0, columns * pointers.num_rows, pointers.num_rows)
    learned = LearnedRows(Assignments.of(pointers), range(columns), first_rows)
    return _rows(size, folded.codebook, [learned], codebook, columns=columns, terms=1)


def _without_helpers(table: ClusteredEmbedding, size: Size, codebook: Codebook) -> FrozenTable:
    """The clustered tables alone."""
    rows, columns = table.tables[:, 0].reshape(-1, table.width), table.num_columns
    learned = LearnedRows(table.assignments, range(columns), range(0, len(rows), table.num_rows))
    num_pieces, _ = table.slots
    return _rows(size, rows, [learned], codebook, columns=num_pieces, terms=columns // num_pieces)


def _rows(
    size: Size,
    codebook: Tensor,
    sources: Sequence[RowSource],
    precision: Codebook,
    *,
    columns: int,
    terms: int,
    product: bool = False,
    weights: Signs | Importance | None = None,
    row_map: RowMap | None = None,
) -> FrozenRows:
    own = [copy_source(source) for source in sources if len(source.slots)]
    stored = StoredRows.of(codebook, precision, [(slot.first_row, slot.num_rows) for slot in describe(own)])
    num_rows, width = codebook.shape
    layout = Layout(size[0], columns, terms, width, num_rows, own, size[2], row_map)
    return FrozenRows(size, stored, layout, product=product, weights=weights)


def _weights(table: LinearEmbedding) -> Signs | Importance | None:
    if not table.is_weighted:
        return None
    if isinstance(table, HashingTrickEmbedding) and table.sign is not None:
        return Signs(table.sign.seeds)
    if isinstance(table, HashEmbedding) and table.importance is not None:
        return Importance(table.importance, None if table.importance_hash is None else table.importance_hash.seeds)
    raise TypeError(f"a table of class {type(table).__name__} cannot be frozen: its weights are not those of cce.")


# -- others ------------------------------------------------------------------------------------------------------------


def _freeze_others(table: Embedding, size: Size, codebook: Codebook) -> FrozenTable | None:
    if isinstance(table, QuantizedEmbedding):
        starts = table.group_starts if table.scale_by == "group" else [0]
        seeds = None if table.hash is None else table.hash.seeds
        codes, num_learned = table.codes, table.num_learned
        return FrozenCodes(
            size, codes.values, table.scale, starts, num_learned=num_learned, seeds=seeds, bits=codes.bits
        )
    if isinstance(table, QuantizationAwareEmbedding):
        codes, scale = table.to_codes()
        return FrozenCodes(size, codes.values, scale, [0], num_learned=size[0], seeds=None, bits=codes.bits)
    if isinstance(table, CollidingEmbedding):
        return _freeze_colliding(table, size, codebook)
    if isinstance(table, MixedDimensionEmbedding):
        narrow, projections = (_stored(parts, codebook) for parts in (table.narrow, table.projections))
        return FrozenBlocks(size, narrow, projections)
    if isinstance(table, LowRankEmbedding):
        return FrozenBlocks(size, _stored([table.narrow], codebook), _stored([table.projection], codebook))
    if isinstance(table, TensorTrainEmbedding):
        return FrozenTensorTrain(size, _stored(table.cores, codebook), table.factors, table.ranks)
    if isinstance(table, DeepHashEmbedding):
        segment = table.hash.num_rows if isinstance(table.hash, MultiplyShift) else 0
        return FrozenNetwork(size, table.hash.seeds, _stored(table.layers, codebook), segment=segment)
    return None


def _freeze_colliding(table: CollidingEmbedding, size: Size, codebook: Codebook) -> FrozenTable:
    if table.assignments is None:
        assert table.projection is not None  # thin until it is clustered
        return FrozenBlocks(size, _stored([table.codebook], codebook), _stored([table.projection], codebook))
    learned = LearnedRows(table.assignments, (0,), (0,))
    return _rows(size, table.codebook, [learned], codebook, columns=1, terms=1)


def _stored(matrices: nn.ParameterList | Sequence[Tensor], codebook: Codebook) -> list[StoredRows]:
    return [StoredRows.of(matrix, codebook) for matrix in matrices]


def _widen(table: FrozenTable) -> None:
    """Give every pointer bytes of its own."""
    for learned in table.modules():
        if isinstance(learned, Assignments) and learned.pointers.bits < BYTE:
            narrow = learned.pointers
            learned.pointers = PointerStore(narrow.num_ids, narrow.num_columns, narrow.num_rows, bits=BYTE)
            learned.pointers.copy_(narrow)
