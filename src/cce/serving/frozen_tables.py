"""Tables for inference: `FrozenRows`, sums of stored rows, and `FrozenCopy`, a copy of any other table.

Vectors are float32; rows are float32, or int8 where they were trained so. Sums are taken in the order of the slots by
every reader (`numpy_reader`, exported programs, compiled loops), so that all give the same bits. An id that a table
does not have reads as id 0, the id of unseen values, in every reader as well: a service has no use for an exception.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from cce.indexing import CircularPlaces, DigitRows, HashedRows, LearnedRows, OwnRow, RowSource, check_id_type
from cce.serving.lookup import LookupHolder, are_readable, known_ids

if TYPE_CHECKING:
    from cce.embeddings import Embedding
    from cce.kernels import Layout


class StoredRows(nn.Module):
    """Values `(num_rows, width)`, float32, or int8 with a scale `(1, width)`: read back as float32."""

    values: Tensor
    scale: Tensor | None

    def __init__(self, values: Tensor, scale: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("values", values)
        self.register_buffer("scale", scale)

    def forward(self, rows: Tensor) -> Tensor:
        """Rows `(n, num_slots)` as vectors `(n, num_slots, width)` of float32."""
        found = self.values.index_select(0, rows.reshape(-1))
        found = found.view(*rows.shape, self.values.shape[1]).to(torch.float32)
        return found if self.scale is None else found * self.scale


class FrozenTable(nn.Module):
    """Ids `(*s)`, int32 or int64, to vectors `(*s, embedding_dim)` of float32; `padding_idx` gives zeros.

    Ids outside `[0, num_embeddings)` read as id 0.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name for it
        """Vectors `(*s, embedding_dim)` of ids `(*s)`."""
        check_id_type(input, self.num_embeddings)
        ids = known_ids(input, self.num_embeddings)
        vectors = self.embed(ids.reshape(-1).long()).reshape(*input.shape, self.embedding_dim)
        if self.padding_idx is None:
            return vectors
        return vectors.masked_fill((ids == self.padding_idx).unsqueeze(-1), 0)

    @abstractmethod
    def embed(self, ids: Tensor) -> Tensor:
        """Vectors `(n, embedding_dim)` of int64 ids `(n)`, in plain torch."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of everything stored."""

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{self.num_embeddings}, {self.embedding_dim}, nbytes={self.nbytes}"


class FrozenRows(LookupHolder, FrozenTable):
    """Rows of one codebook, summed as a layout says; the layout's sources, and its map, are this table's own.

    Every method whose H is sparse and not weighted: full tables, hashing, compositional embeddings, ROBE, product
    quantisation, CCE in both of its forms.
    """

    def __init__(self, rows: StoredRows, layout: Layout) -> None:
        super().__init__(layout.num_embeddings, layout.dim, layout.padding_idx)
        self.rows, self.layout = rows, layout
        held = [value for source in layout.sources for value in vars(source).values()]
        self.index = nn.ModuleList(value for value in held if isinstance(value, nn.Module))
        self.map = layout.row_map

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name for it
        """Vectors `(*s, embedding_dim)` of ids `(*s)`, by compiled loops where they can serve."""
        lookup = self.find_lookup([self]) if are_readable(input) else None
        if lookup is None:
            return super().forward(input)
        return lookup(input.reshape(-1), (*input.shape, self.embedding_dim))

    def embed(self, ids: Tensor) -> Tensor:
        """The rows, summed over terms, side by side; zeros for ids that the map does not have."""
        pieces: Tensor = self.rows(self.layout.rows(ids).flatten(1))  # (n, columns · terms, width)
        pieces = pieces.view(-1, self.layout.columns, self.layout.terms, self.layout.width)
        vectors = reduce(add, torch.unbind(pieces, 2)).flatten(1)
        return vectors if self.map is None else vectors.masked_fill((self.map(ids) == 0).unsqueeze(-1), 0)

    @property
    def nbytes(self) -> int:
        """Bytes of everything stored."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def tensors(self) -> dict[str, Tensor]:
        """Everything stored, as a file names it (`docs/format.md`)."""
        own = {f"rows.{name}": tensor for name, tensor in self.rows.state_dict().items()}
        if self.map is not None:
            own |= {"map.bits": self.map.bits, "map.ranks": self.map.ranks}
        for index, source in enumerate(self.layout.sources):
            own |= {f"groups.{index}.{name}": tensor for name, tensor in source_tensors(source).items()}
        return own

    def spec(self) -> dict[str, Any]:
        """What a reader must know beside the tensors (`docs/format.md`)."""
        groups = [source_spec(source) for source in self.layout.sources]
        return row_spec(self) | {"columns": self.layout.columns, "terms": self.layout.terms, "groups": groups}


class FrozenCopy(FrozenTable):
    """A copy of a table whose vectors are not sums of rows: `dhe`, `tt`, `low-rank`, weighted hashes, others' methods.

    It computes as the trained table does, in float32. A file of rows has its vectors in full.
    """

    def __init__(self, table: Embedding) -> None:
        super().__init__(table.num_embeddings, table.embedding_dim, table.padding_idx)
        self.table = copy.deepcopy(table).float().cpu().requires_grad_(requires_grad=False).eval()

    def embed(self, ids: Tensor) -> Tensor:
        """The vectors of the copy."""
        return self.table.embed(ids)

    @property
    def nbytes(self) -> int:
        """Bytes of the copy."""
        return self.table.nbytes


# -- what files say ----------------------------------------------------------------------------------------------------


def row_spec(table: FrozenTable) -> dict[str, Any]:
    """What a reader must know of every table: here, of one with a row for each id."""
    return {
        "kind": "rows",
        "num_embeddings": table.num_embeddings,
        "embedding_dim": table.embedding_dim,
        "padding_idx": table.padding_idx,
        "columns": 1,
        "terms": 1,
        "groups": [{"kind": "own", "slots": [0], "first_rows": [0]}],
    }


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
