"""Tables for inference: one class for each way to make a vector of rows, in plain operations and with plain buffers.

Vectors are float32, whatever the rows are stored in. Sums and products are taken in the order of the slots, in float32,
by every reader (`numpy_reader`, exported programs, compiled loops), so that all give the same bits.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import reduce
from operator import add, mul
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor, nn

from cce.indexing import check_ids, hash32
from cce.serving.lookup import LookupHolder, RowLookup, are_readable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cce.serving.row_groups import RowGroup
    from cce.serving.stored_rows import StoredRows

HALF_BYTE = 4


class FrozenTable(nn.Module):
    """Ids `(*s)`, int32 or int64, to vectors `(*s, embedding_dim)` of float32; `padding_idx` gives zeros."""

    kind: ClassVar[str]

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name for it
        """Vectors `(*s, embedding_dim)` of ids `(*s)`."""
        check_ids(input, self.num_embeddings)
        vectors = self.embed(input.reshape(-1).long()).reshape(*input.shape, self.embedding_dim)
        if self.padding_idx is None:
            return vectors
        return vectors.masked_fill((input == self.padding_idx).unsqueeze(-1), 0)

    @abstractmethod
    def embed(self, ids: Tensor) -> Tensor:
        """Vectors `(n, embedding_dim)` of int64 ids `(n)`."""

    @property
    def nbytes(self) -> int:
        """Bytes of everything stored."""
        return sum(buffer.nbytes for buffer in self.buffers())

    def spec(self) -> dict[str, Any]:
        """What a reader must know beside the tensors (`docs/format.md`)."""
        return {
            "kind": self.kind,
            "num_embeddings": self.num_embeddings,
            "embedding_dim": self.embedding_dim,
            "padding_idx": self.padding_idx,
        }

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{self.num_embeddings}, {self.embedding_dim}, nbytes={self.nbytes}"


class Signs(nn.Module):
    """+1 or −1 for each slot, from the top bit of a hash."""

    kind: ClassVar[str] = "signs"
    seeds: Tensor

    def __init__(self, seeds: Tensor) -> None:
        super().__init__()
        self.register_buffer("seeds", seeds.detach().cpu().clone())

    def forward(self, ids: Tensor) -> Tensor:
        """Weights `(n, num_slots, 1)`."""
        return (1 - 2 * (hash32(ids, self.seeds) >> 31)).to(torch.float32).unsqueeze(-1)


class Importance(nn.Module):
    """Trained weights of the slots: one row of them for each id, or for each hash of an id."""

    kind: ClassVar[str] = "importance"
    weights: Tensor
    seeds: Tensor | None

    def __init__(self, weights: Tensor, seeds: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("weights", weights.detach().float().cpu().clone())
        self.register_buffer("seeds", None if seeds is None else seeds.detach().cpu().clone())

    def forward(self, ids: Tensor) -> Tensor:
        """Weights `(n, num_slots, 1)`."""
        if self.seeds is not None:
            ids = ((hash32(ids, self.seeds) * len(self.weights)) >> 32).squeeze(-1)
        return self.weights.index_select(0, ids).unsqueeze(-1)


class FrozenRows(LookupHolder, FrozenTable):
    """Rows of one codebook, `columns` pieces of `terms` rows each: summed, or with `product` multiplied over columns.

    Every method whose H is sparse: full tables, hashing, compositional embeddings, ROBE, product quantisation, CCE.
    """

    kind = "rows"

    def __init__(
        self,
        size: tuple[int, int, int | None],
        rows: StoredRows,
        groups: Sequence[RowGroup],
        *,
        columns: int,
        terms: int,
        product: bool = False,
        weights: Signs | Importance | None = None,
    ) -> None:
        super().__init__(*size)
        self.rows = rows
        self.groups = nn.ModuleList(groups)
        self.columns, self.terms, self.product = columns, terms, product
        self.weights = weights

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name for it
        """Vectors `(*s, embedding_dim)` of ids `(*s)`, by compiled loops where they can serve."""
        if not are_readable(input):
            return super().forward(input)
        if self._lookup is None:
            self._lookup = RowLookup([self]) if RowLookup.suits([self]) else False
        if self._lookup is False:
            return super().forward(input)
        ids = input.contiguous().long()
        vectors = torch.empty((*input.shape, self.embedding_dim))
        return self._lookup(ids, ids.numel(), 1, 0, vectors)

    def embed(self, ids: Tensor) -> Tensor:
        """The rows, weighted, summed over terms, side by side."""
        pieces: Tensor = self.rows(self.row_numbers(ids))  # (n, columns · terms, width)
        if self.weights is not None:
            pieces = pieces * self.weights(ids)
        if self.product:
            return reduce(mul, torch.unbind(pieces, 1))
        pieces = pieces.view(-1, self.columns, self.terms, pieces.shape[-1])
        return reduce(add, torch.unbind(pieces, 2)).flatten(1)

    def row_numbers(self, ids: Tensor) -> Tensor:
        """Rows `(n, columns · terms)` of the codebook."""
        if len(self.groups) == 1:
            return self.groups[0](ids)  # type: ignore[no-any-return]
        found: dict[int, Tensor] = {}
        for group in cast("list[RowGroup]", list(self.groups)):
            found |= zip(group.slots, group(ids).unbind(-1), strict=True)
        return torch.stack([found[slot] for slot in sorted(found)], dim=-1)

    def spec(self) -> dict[str, Any]:
        """With how rows are combined, and where they come from."""
        return super().spec() | {
            "columns": self.columns,
            "terms": self.terms,
            "product": self.product,
            "groups": [group.spec() for group in self.groups],  # type: ignore[operator]
            "weights": None if self.weights is None else self.weights.kind,
        }


class FrozenCodes(FrozenTable):
    """Rows of integers times a scale for the table, for each column, or for each frequency group of rows."""

    kind = "codes"
    values: Tensor
    scale: Tensor
    starts: Tensor
    seeds: Tensor | None

    def __init__(
        self,
        size: tuple[int, int, int | None],
        values: Tensor,
        scale: Tensor,
        starts: Sequence[int],
        *,
        num_learned: int,
        seeds: Tensor | None,
        bits: int,
    ) -> None:
        super().__init__(*size)
        self.num_learned, self.bits = num_learned, bits
        self.register_buffer("values", values.detach().cpu().clone())
        self.register_buffer("scale", scale.detach().float().cpu().clone())
        self.register_buffer("starts", torch.tensor(starts, dtype=torch.int64, device="cpu"))
        self.register_buffer("seeds", None if seeds is None else seeds.detach().cpu().clone())

    def embed(self, ids: Tensor) -> Tensor:
        """The codes of the rows, times their scale."""
        rows = ids
        if self.seeds is not None:
            num_shared = len(self.values) - self.num_learned
            shared = ((hash32(ids, self.seeds) * num_shared) >> 32).squeeze(-1) + self.num_learned
            rows = torch.where(ids < self.num_learned, ids, shared)
        scale = self.scale
        if len(scale) > 1:
            scale = scale.index_select(0, (rows.unsqueeze(-1) >= self.starts).sum(-1) - 1)
        return self._read(rows).to(torch.float32) * scale

    def _read(self, rows: Tensor) -> Tensor:
        """The codes of rows; those of 4 bits lie two in a byte, the first in its lower half, as 0 to 15."""
        found = self.values.index_select(0, rows)
        if self.bits != HALF_BYTE:
            return found
        pairs = torch.stack([found & 15, found >> HALF_BYTE], dim=-1).flatten(1)
        return pairs[:, : self.embedding_dim].to(torch.int32) - 8

    def spec(self) -> dict[str, Any]:
        """With the ids that have rows of their own."""
        return super().spec() | {"num_learned": self.num_learned, "bits": self.bits}


class FrozenBlocks(FrozenTable):
    """Blocks of consecutive ids with narrow rows of their own, which projections widen."""

    kind = "blocks"

    def __init__(
        self, size: tuple[int, int, int | None], narrow: Sequence[StoredRows], projections: Sequence[StoredRows]
    ) -> None:
        super().__init__(*size)
        self.narrow, self.projections = nn.ModuleList(narrow), nn.ModuleList(projections)

    def embed(self, ids: Tensor) -> Tensor:
        """Every block answers for the ids it holds."""
        wide = len(self.narrow) - len(self.projections)  # blocks that need no projection
        vectors: Tensor | None = None
        start = 0
        projections = rows_of(self.projections)
        for index, narrow in enumerate(rows_of(self.narrow)):
            num_rows = len(narrow.values)
            inside: Tensor = narrow((ids - start).clamp(0, num_rows - 1).unsqueeze(-1)).squeeze(1)
            if index >= wide:
                inside = inside @ projections[index - wide].dense()
            vectors = inside if vectors is None else torch.where((ids >= start).unsqueeze(-1), inside, vectors)
            start += num_rows
        assert vectors is not None  # there is at least one block
        return vectors


def rows_of(modules: nn.ModuleList) -> list[StoredRows]:
    """The matrices of a list of modules."""
    return cast("list[StoredRows]", list(modules))
