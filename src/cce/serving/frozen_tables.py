"""Tables for inference: one class for each way to make a vector of rows, in plain operations and with plain buffers.

Vectors are float32, whatever the rows are stored in. Sums and products are taken in the order of the slots, in float32,
by every reader (`numpy_reader`, exported programs, compiled loops), so that all give the same bits. An id that a table
does not have reads as id 0, the id of unseen values, in every reader as well: a service has no use for an exception.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import reduce
from operator import add, mul
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor, nn

from cce.indexing import check_id_type, hash32
from cce.serving.lookup import LookupHolder, are_readable, known_ids
from cce.serving.row_sources import modules_of, source_spec, source_tensors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cce.indexing import RowMap
    from cce.kernels import Layout
    from cce.serving.stored_rows import StoredRows

HALF_BYTE = 4


class FrozenTable(nn.Module):
    """Ids `(*s)`, int32 or int64, to vectors `(*s, embedding_dim)` of float32; `padding_idx` gives zeros.

    Ids outside `[0, num_embeddings)` read as id 0.
    """

    kind: ClassVar[str]

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
        """Vectors `(n, embedding_dim)` of int64 ids `(n)`."""

    @property
    def nbytes(self) -> int:
        """Bytes of everything stored."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def tensors(self) -> dict[str, Tensor]:
        """Everything stored, as a file names it (`docs/format.md`)."""
        return self.state_dict()

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
    """Rows of one codebook: summed as a layout says, or with `product` multiplied over its columns.

    Every method whose H is sparse: full tables, hashing, compositional embeddings, ROBE, product quantisation, CCE.
    The sources of the layout and its map, if it has one, are this table's own.
    """

    kind = "rows"

    def __init__(
        self,
        size: tuple[int, int, int | None],
        rows: StoredRows,
        layout: Layout,
        *,
        product: bool = False,
        weights: Signs | Importance | None = None,
    ) -> None:
        super().__init__(*size)
        self.rows, self.layout, self.product, self.weights = rows, layout, product, weights
        self.index = nn.ModuleList(module for source in layout.sources for module in modules_of(source))
        self.map = layout.row_map

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name for it
        """Vectors `(*s, embedding_dim)` of ids `(*s)`, by compiled loops where they can serve."""
        lookup = self.find_lookup([self]) if are_readable(input) else False
        if lookup is False:
            return super().forward(input)
        return lookup(input.reshape(-1), (*input.shape, self.embedding_dim))

    def embed(self, ids: Tensor) -> Tensor:
        """The rows, weighted, summed over terms, side by side."""
        pieces: Tensor = self.rows(self.layout.rows(ids).flatten(1))  # (n, columns · terms, width)
        if self.weights is not None:
            pieces = pieces * self.weights(ids)
        if self.product:
            return reduce(mul, torch.unbind(pieces, 1))
        pieces = pieces.view(-1, self.layout.columns, self.layout.terms, self.layout.width)
        vectors = reduce(add, torch.unbind(pieces, 2)).flatten(1)
        return vectors if self.map is None else vectors.masked_fill((self.map(ids) == 0).unsqueeze(-1), 0)

    def tensors(self) -> dict[str, Tensor]:
        """The codebook, weights, the map, and the tensors of each source."""
        own = {name: tensor for name, tensor in self.state_dict().items() if not name.startswith(("index.", "map."))}
        sources = enumerate(self.layout.sources)
        return (
            own
            | _map_tensors(self.map)
            | {
                f"groups.{place}.{name}": tensor
                for place, source in sources
                for name, tensor in source_tensors(source).items()
            }
        )

    def spec(self) -> dict[str, Any]:
        """With how rows are combined, and where they come from."""
        return super().spec() | {
            "columns": self.layout.columns,
            "terms": self.layout.terms,
            "product": self.product,
            "groups": [source_spec(source) for source in self.layout.sources],
            "weights": None if self.weights is None else self.weights.kind,
        }


class FrozenCodes(FrozenTable):
    """Rows of integers times a scale for the table, for each column, or for each frequency group of rows.

    row_map: where it is given, the row of an id is what it says; 0 for all ids that have none of their own.
    """

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
        row_map: RowMap | None = None,
    ) -> None:
        super().__init__(*size)
        self.num_learned, self.bits, self.map = num_learned, bits, row_map
        self.register_buffer("values", values.detach().cpu().clone())
        self.register_buffer("scale", scale.detach().float().cpu().clone())
        self.register_buffer("starts", torch.tensor(starts, dtype=torch.int64, device="cpu"))
        self.register_buffer("seeds", None if seeds is None else seeds.detach().cpu().clone())

    def embed(self, ids: Tensor) -> Tensor:
        """The codes of the rows, times their scale."""
        rows = ids if self.map is None else self.map(ids)
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

    def tensors(self) -> dict[str, Tensor]:
        """The rows, their scale and the map."""
        return super().tensors() | _map_tensors(self.map)

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
        projections = stored_rows(self.projections)
        for index, narrow in enumerate(stored_rows(self.narrow)):
            num_rows = len(narrow.values)
            inside: Tensor = narrow((ids - start).clamp(0, num_rows - 1).unsqueeze(-1)).squeeze(1)
            if index >= wide:
                inside = inside @ projections[index - wide].dense()
            vectors = inside if vectors is None else torch.where((ids >= start).unsqueeze(-1), inside, vectors)
            start += num_rows
        assert vectors is not None  # there is at least one block
        return vectors


def _map_tensors(row_map: RowMap | None) -> dict[str, Tensor]:
    return {} if row_map is None else {"map.bits": row_map.bits, "map.ranks": row_map.ranks}


def stored_rows(modules: nn.ModuleList) -> list[StoredRows]:
    """The matrices of a list of modules."""
    return cast("list[StoredRows]", list(modules))
