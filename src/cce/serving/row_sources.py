"""The sources of rows of a frozen table: copies of a trained table's, and what files say of them (`docs/format.md`)."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from cce.indexing import CircularPlaces, DigitRows, HashedRows, LearnedRows, OwnRow

if TYPE_CHECKING:
    from cce.indexing import RowSource


def copy_source(source: RowSource) -> RowSource:
    """The same rows, whatever becomes of the trained table.

    Pointers are not copied: a vocabulary may be large, and a table that is clustered again gets a new store of them.
    """
    shared = [source.assignments.pointers] if isinstance(source, LearnedRows) else []
    return copy.deepcopy(source, {id(store): store for store in shared})


def modules_of(source: RowSource) -> list[nn.Module]:
    """The modules that hold the state of a source."""
    return [value for value in vars(source).values() if isinstance(value, nn.Module)]


def source_spec(source: RowSource) -> dict[str, Any]:
    """What a reader must know of a source beside its tensors."""
    kind, numbers = _describe(source)
    first_rows = [slot.first_row for slot in source.describe()]
    return {"kind": kind, "slots": list(source.slots), "first_rows": first_rows, **numbers}


def source_tensors(source: RowSource) -> dict[str, Tensor]:
    """The tensors of a source, as a file names them."""
    if isinstance(source, LearnedRows):
        learned = source.assignments
        hashed = {} if learned.num_learned == learned.num_embeddings else {"seeds": learned.hash.seeds}
        return {"words": learned.pointers.words, **hashed}
    return {"seeds": source.hash.seeds} if isinstance(source, HashedRows | CircularPlaces) else {}


def _describe(source: RowSource) -> tuple[str, dict[str, Any]]:
    """The kind of a source, and its numbers."""
    if isinstance(source, OwnRow):
        return "own", {}
    if isinstance(source, HashedRows):
        return "hashed", {"num_rows": source.hash.num_rows}
    if isinstance(source, LearnedRows):
        store = source.assignments.pointers
        return "learned", {"num_rows": store.num_rows, "bits": store.bits, "num_learned": store.num_ids}
    if isinstance(source, DigitRows):
        return "digits", {"radices": list(source.split.rows_per_column)}
    if isinstance(source, CircularPlaces):
        return "circular", {"size": source.hash.num_rows, "dim": source.dim, "block_size": source.block_size}
    raise TypeError(f"rows must come from a source of cce.indexing to be frozen, got {type(source).__name__}.")
