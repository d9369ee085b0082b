"""Tables for inference: `FrozenRows`, sums of stored rows, and `FrozenCopy`, a copy of any other table.

Vectors are float32; rows are float32, or int8 where they were trained so. Plain torch, in `embed`, is the definition,
and what exported programs hold; elsewhere the compiled loops of training (`cce.kernels`) look up several tables in one
call. Every reader takes sums in the order of the slots, so that all give the same bits. An id that a table does not
have reads as id 0, the id of unseen values, in every reader as well: a service has no use for an exception.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from operator import add
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor, nn

from cce import compiled
from cce.indexing import (
    CircularPlaces,
    DigitRows,
    HashedRows,
    LearnedRows,
    OwnRow,
    RowSource,
    blocks,
    check_id_type,
)
from cce.kernels import LaunchPlan, bind_int8, is_eager, is_int8_ready, is_ready, look_up_ids, look_up_int8
from cce.signals import uninterrupted

if TYPE_CHECKING:
    from cce.embeddings import Embedding
    from cce.kernels import Layout

EXCHANGE = RLock()
ID_TYPES = (torch.int32, torch.int64)
BLOCK = 1 << 16  # ids of a table in full at a time
TYPES = ({torch.float32}, {torch.int8})  # of rows that are looked up together


def are_readable(ids: Any) -> bool:
    """Whether compiled loops can read these: a real tensor of ids on the CPU, outside any tracer."""
    return type(ids) is Tensor and ids.is_cpu and ids.dtype in ID_TYPES and is_eager()


def known_ids(ids: Tensor, num_embeddings: int | None) -> Tensor:
    """The ids, with 0, the id of unseen values, for those outside `[0, num_embeddings)`, if ids are bounded."""
    return ids if num_embeddings is None else torch.where((ids >= 0) & (ids < num_embeddings), ids, 0)


def exchange(states: Iterable[tuple[nn.Module, dict[str, Any]]]) -> None:
    """Let modules have other attributes: all of them, for lookups that begin after it."""
    with uninterrupted(), EXCHANGE:
        for module, state in states:
            object.__setattr__(module, "__dict__", state)


def as_of_now(modules: Sequence[nn.Module]) -> list[Any]:
    """These modules as they are at this moment, whatever `exchange` does to them later."""
    if not is_eager():
        return list(modules)
    found = [object.__new__(type(module)) for module in modules]
    with EXCHANGE:
        for copied, module in zip(found, modules, strict=True):
            object.__setattr__(copied, "__dict__", vars(module))
    return found


class RowLookup:
    """Vectors of float32 of ids `(B, F)`, one table for each column; `suits` says for which tables."""

    def __init__(self, tables: Sequence[FrozenRows]) -> None:
        self.num_embeddings = [table.num_embeddings for table in tables]
        plan = LaunchPlan([table.layout for table in tables])
        codebooks = [table.rows.values for table in tables]
        scales = [table.rows.scale for table in tables]
        self._state = [*codebooks, *scales]  # alive while their addresses are used
        self._look_up: Callable[[Tensor, Sequence[int]], Tensor]
        self._is_ready: Callable[[], bool]
        self.is_ready = False  # whether its loops are known to be compiled
        if codebooks[0].dtype is torch.int8:
            int8 = bind_int8(plan, codebooks, scales)  # type: ignore[arg-type]
            self._look_up, self._is_ready = partial(look_up_int8, int8), partial(is_int8_ready, int8)
        else:
            floats = plan.bind(codebooks)
            self._look_up = lambda ids, shape: look_up_ids(floats, ids, shape, save=False)[0]
            self._is_ready = partial(is_ready, floats)

    @staticmethod
    def suits(tables: Sequence[FrozenTable]) -> bool:
        """Whether compiled loops can serve these tables: rows of one type, on the CPU."""
        found = [table for table in tables if isinstance(table, FrozenRows)]
        tensors = [tensor for table in found for tensor in table.tensors().values()]
        return (
            compiled.available
            and 0 < len(found) == len(tables)
            and {table.rows.values.dtype for table in found} in TYPES
            and all(tensor.is_cpu and tensor.is_contiguous() for tensor in tensors)
        )

    def __call__(self, ids: Tensor, shape: Sequence[int]) -> Tensor | None:
        """Vectors of ids `(B, F)`, or `(B)` for a single table, in this shape; None while its loops are compiled."""
        if not self.is_ready:
            self.is_ready = self._is_ready()
            if not self.is_ready:
                return None
        try:
            return self._look_up(ids, shape)
        except IndexError:
            columns = ids.view(len(ids), -1).unbind(1)
            known = [known_ids(column, size) for column, size in zip(columns, self.num_embeddings, strict=True)]
            return self._look_up(torch.stack(known, dim=1), shape)


class LookupHolder(nn.Module):
    """A module that keeps the `RowLookup` of its tables while they stay where they are."""

    _lookup: RowLookup | Literal[False] | None = None  # False where compiled loops cannot serve; None: not known yet

    def look_up(self, ids: Tensor, shape: Sequence[int]) -> Tensor | None:
        """Vectors of ids that `are_readable` by compiled loops; None where plain torch serves."""
        lookup = self._lookup  # of one state
        if lookup is None:
            held, *tables = as_of_now([self, *self.looked_up()])
            lookup = held._lookup = RowLookup(tables) if RowLookup.suits(tables) else False
        return lookup(ids, shape) if lookup else None

    @abstractmethod
    def looked_up(self) -> Sequence[FrozenTable]:
        """The tables of the columns of ids."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002
        self._lookup = None  # addresses change
        applied: Self = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return applied

    def __getstate__(self) -> dict[str, Any]:
        """A copy looks up by itself, with other addresses."""
        return self.__dict__ | {"_lookup": None}


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

    num_embeddings: Any  # an int; None: any ids

    def __init__(self, num_embeddings: int | None, embedding_dim: int, padding_idx: int | None) -> None:
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

    def tensors(self) -> dict[str, Tensor]:
        """What a file holds of the table, by name (`docs/format.md`): here all its vectors."""
        if self.num_embeddings is None:
            raise ValueError("a table of any ids must be made of rows to be written to a file of rows.")
        with torch.no_grad():
            return {"rows.values": torch.cat([self(ids) for ids in blocks(self.num_embeddings, BLOCK)])}

    def spec(self) -> dict[str, Any]:
        """What a reader must know beside the tensors (`docs/format.md`)."""
        return {
            "kind": "rows",
            "num_embeddings": self.num_embeddings,
            "embedding_dim": self.embedding_dim,
            "padding_idx": self.padding_idx,
            "columns": 1,
            "terms": 1,
            "groups": [{"kind": "own", "slots": [0], "first_rows": [0]}],
        }

    def extra_repr(self) -> str:
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
        found = None
        if are_readable(input):
            found = self.look_up(input.reshape(-1), (*input.shape, self.embedding_dim))
        return FrozenTable.forward(as_of_now([self])[0], input) if found is None else found

    def looked_up(self) -> Sequence[FrozenTable]:
        """The table itself."""
        return [self]

    def embed(self, ids: Tensor) -> Tensor:
        """The rows, summed over terms, side by side; zeros for ids that the map does not have."""
        pieces: Tensor = self.rows(self.layout.rows(ids).flatten(1))  # (n, columns · terms, width)
        pieces = pieces.view(-1, self.layout.columns, self.layout.terms, self.layout.width)
        vectors = reduce(add, torch.unbind(pieces, 2)).flatten(1)
        return vectors if self.map is None else vectors.masked_fill((self.map(ids) == 0).unsqueeze(-1), 0)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def tensors(self) -> dict[str, Tensor]:
        """Everything stored, as a file names it (`docs/format.md`)."""
        own = {f"rows.{name}": tensor for name, tensor in self.rows.state_dict().items()}
        if self.map is not None:
            own |= self.map.stored()
        for index, source in enumerate(self.layout.sources):
            own |= {f"groups.{index}.{name}": tensor for name, tensor in _tensors(source).items()}
        return own

    def spec(self) -> dict[str, Any]:
        """What a reader must know beside the tensors."""
        groups = [
            _describe(source)
            | {"slots": list(source.slots), "first_rows": [slot.first_row for slot in source.describe()]}
            for source in self.layout.sources
        ]
        return super().spec() | {"columns": self.layout.columns, "terms": self.layout.terms, "groups": groups}


class FrozenCopy(FrozenTable):
    """A copy of a table whose vectors are not sums of rows: `dhe`, `tt`, `low-rank`, weighted hashes, others' methods.

    It computes as the trained table does, in float32. A file of rows has its vectors in full.
    """

    def __init__(self, table: Embedding) -> None:
        super().__init__(table.num_embeddings, table.embedding_dim, table.padding_idx)
        self.table = copy.deepcopy(table).float().cpu().requires_grad_(requires_grad=False).eval()

    def embed(self, ids: Tensor) -> Tensor:
        return self.table.embed(ids)

    @property
    def nbytes(self) -> int:
        return self.table.nbytes


# -- what files say ----------------------------------------------------------------------------------------------------


def _tensors(source: RowSource) -> dict[str, Tensor]:
    """The tensors of a source, as a file names them."""
    if isinstance(source, LearnedRows):
        return {"words": source.assignments.words}
    return {"seeds": source.hash.seeds} if isinstance(source, HashedRows | CircularPlaces) else {}


def _describe(source: RowSource) -> dict[str, Any]:
    """The kind of a source, and its numbers."""
    if isinstance(source, OwnRow):
        return {"kind": "own"}
    if isinstance(source, HashedRows):
        return {"kind": "hashed", "num_rows": source.hash.num_rows}
    if isinstance(source, LearnedRows):
        store = source.assignments.pointers
        return {"kind": "learned", "num_rows": store.num_rows, "bits": store.bits, "num_ids": store.num_ids}
    if isinstance(source, DigitRows):
        return {"kind": "digits", "radices": list(source.split.rows_per_column)}
    if isinstance(source, CircularPlaces):
        sizes = {"size": source.hash.num_rows, "dim": source.dim, "block_size": source.block_size}
        return {"kind": "circular", **sizes}
    raise TypeError(f"rows must come from a source of cce.indexing to be frozen, got {type(source).__name__}.")
