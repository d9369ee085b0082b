"""The compact form of a `cce` table: codebooks, one for each column, and a pointer for each row and column.

`TrainedRows` makes it from int8 rows by k-means of each column, weighted by how often ids occurred. Product
quantisation: Jégou, Douze and Schmid (2011). With a column for each value and the 256 levels of int8 in its codebook,
the compact form equals the rows exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor

from cce.clustering import ClusterSettings, ProductQuantizer, Sample, Weights, draw_weighted, encode_all
from cce.indexing import IndexModule, PointerStore, RowSource, Slot, blocks, slots_of

if TYPE_CHECKING:
    from cce.embeddings.int8_rows import Int8Rows

LEVELS = 256  # of an int8 value
SETTINGS = ClusterSettings(tol=1e-3, weighted=True, init="k-means++", points_per_row=64)
LEAST_SAMPLE = 1 << 16  # rows that codebooks are fitted to, if there are so many
MEASURED_AT_A_TIME = 1 << 14  # rows whose error is measured together


class RowPointers(IndexModule):
    """Pointers of rows, in the order of rows; none while a table trains as int8 rows."""

    index_state: ClassVar[tuple[str, ...]] = ()  # the store saves itself

    def __init__(self, num_columns: int, *, is_meta: bool = False) -> None:
        super().__init__()
        self.store = PointerStore(0, num_columns, 1, is_meta=is_meta)

    @property
    def nbytes(self) -> int:
        """Bytes of the pointers."""
        return self.store.nbytes

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:  # noqa: FBT001
        super()._save_to_state_dict(destination, prefix, keep_vars)
        sizes = [self.store.num_ids, self.store.num_columns, self.store.num_rows]
        destination[prefix + "words"] = self.store.words
        destination[prefix + "sizes"] = torch.tensor(sizes, dtype=torch.int64, device=self.store.words.device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002
        self.store.set_meta(fn(torch.empty(0, device=self.store.words.device)).is_meta)
        return super()._apply(fn, recurse)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        found = {name: state_dict.pop(prefix + name, None) for name in ("words", "sizes")}
        super()._load_from_state_dict(state_dict, prefix, *args)
        _, _, missing_keys, _, error_msgs = args
        missing_keys += [prefix + name for name, tensor in found.items() if tensor is None]
        if any(tensor is None for tensor in found.values()):
            return
        store = PointerStore(*found["sizes"].tolist())
        if store.words.shape != found["words"].shape or store.words.dtype != found["words"].dtype:
            shape = tuple(found["words"].shape)
            error_msgs.append(f"words mismatch for {prefix}words: {shape} do not fit their sizes.")
            return
        store.words.copy_(found["words"])
        self.store = store


@dataclass(frozen=True)
class PointedRows(RowSource):
    """Rows that the pointers of an id's row name, each in the table of its column."""

    store: PointerStore

    @property
    def slots(self) -> Sequence[int]:  # type: ignore[override]
        """One for each column."""
        return range(self.store.num_columns)

    def rows(self, ids: Tensor) -> Tensor:
        """Each column's row, in its table; `ids` are rows of the table, counted from 0."""
        return self.store.read(ids) + torch.arange(self.store.num_columns, device=ids.device) * self.store.num_rows

    def describe(self) -> list[Slot]:
        """One slot for each column."""
        return slots_of(self.store, [column * self.store.num_rows for column in self.slots])


@dataclass(frozen=True)
class Compact:
    """The compact form of a table, before it takes effect."""

    codebooks: Tensor  # (num_columns, num_rows, width)
    store: PointerStore
    distortion: float  # mean squared error of a value, weighted by how often ids occurred

    def state(self) -> dict[str, Any]:
        """Plain values and tensors, to send to another process."""
        sizes = [self.store.num_ids, self.store.num_columns, self.store.num_rows]
        return {"codebooks": self.codebooks, "words": self.store.words, "sizes": sizes, "distortion": self.distortion}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Compact:
        """What was sent."""
        store = PointerStore(*state["sizes"])
        store.words.copy_(state["words"])
        return cls(state["codebooks"], store, state["distortion"])


class TrainedRows:
    """The int8 rows of a table as points to cluster, each weighted by how often its id occurred.

    occurrences: of the id of each row, row 0 included, which is clustered only if it was trained; by default as rows
        have counted.
    """

    def __init__(self, rows: Int8Rows, occurrences: Tensor | None = None) -> None:
        if rows.num_rows == 1:
            raise ValueError(f"{rows.name} must have rows to be finalized, got none: no id occurred often enough.")
        self.first = 0 if rows.trains_unseen else 1
        self.rows, self.dim, self.num_points = rows, rows.dim, rows.num_rows - self.first
        self.weights: Weights = _CountedWeights(rows, self.first)
        if occurrences is not None:
            self.weights = occurrences[self.first :].clamp_(min=1)  # where they are: a copy of them may be large

    @cached_property
    def mass(self) -> float:
        """The sum of all weights."""
        return sum(float(weights.sum()) for _, weights in self._blocks())

    def points(self, at: Tensor) -> Tensor:
        """Vectors `(n, dim)` of the points with these indices."""
        return self.rows.codes[at.to(self.rows.records.device) + self.first].float() * self.rows.scale

    def fit(self, num_columns: int, num_rows: int, generator: torch.Generator | None = None) -> Codebooks:
        """Codebooks of so many columns and rows, fitted to a sample of the rows."""
        if num_columns == self.dim and num_rows == LEVELS:
            levels = (torch.arange(LEVELS) - LEVELS // 2) * self.rows.scale
            return Codebooks(levels.view(1, -1, 1).repeat(self.dim, 1, 1), None, 0.0)
        quantizer = ProductQuantizer(num_columns, num_rows, SETTINGS)
        num_points = max(SETTINGS.points_per_row * num_rows, LEAST_SAMPLE)
        ids, weights = draw_weighted(self.weights, num_points, generator=generator)
        sample = Sample(self.points, ids, self.dim, weights)
        quantizer.fit(sample, generator)
        return Codebooks(quantizer.codebooks, quantizer, sum(quantizer.inertias) / float(weights.sum()) / self.dim)

    def encode(self, codebooks: Codebooks) -> Compact:
        """The compact form of all rows."""
        if codebooks.quantizer is not None:
            store = encode_all(codebooks.quantizer, self.points, self.num_points, self.dim)
            return Compact(codebooks.values, store, self._distortion(codebooks.values, store))
        store = PointerStore(self.num_points, self.dim, LEVELS)
        for first in range(0, self.num_points, MEASURED_AT_A_TIME):
            start = first + self.first
            codes = self.rows.codes[start : min(start + MEASURED_AT_A_TIME, self.rows.num_rows)]
            store.write(first, codes.int() + LEVELS // 2)
        return Compact(codebooks.values, store, 0.0)

    @property
    def variance(self) -> float:
        """The weighted mean squared difference of a value from its mean: the error of a codebook of one row."""
        total, squares = torch.zeros(self.dim, dtype=torch.float64), 0.0
        for at, weights in self._blocks():
            weighted = self.points(at).cpu().double() * weights.unsqueeze(1)
            total += weighted.sum(0)
            squares += float((weighted * self.points(at).cpu()).sum())
        return max(0.0, squares / self.mass - float((total / self.mass).square().sum())) / self.dim

    def _distortion(self, codebooks: Tensor, store: PointerStore) -> float:
        """The weighted mean squared error of a value."""
        columns, values, total = torch.arange(store.num_columns), codebooks.cpu(), 0.0
        for at, weights in self._blocks():
            errors = (self.points(at).cpu() - values[columns, store.read(at)].flatten(1)).square().mean(1)
            total += float((errors.double() * weights).sum())
        return total / self.mass

    def _blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Indices of all points and their weights, some at a time."""
        for at in blocks(self.num_points, MEASURED_AT_A_TIME):
            yield at, self.weights[at].double()


class _CountedWeights:
    """Weights of rows as they have counted, read from a byte a row when they are asked for."""

    def __init__(self, rows: Int8Rows, first: int) -> None:
        self.rows, self.first = rows, first

    def __len__(self) -> int:
        return self.rows.num_rows - self.first

    def __getitem__(self, at: Tensor | slice) -> Tensor:
        if isinstance(at, slice):
            at = slice((at.start or 0) + self.first, None if at.stop is None else at.stop + self.first)
        else:
            at = at.to(self.rows.records.device) + self.first
        return self.rows.occurrences(at).cpu().clamp_(min=1)


@dataclass(frozen=True)
class Codebooks:
    """Codebooks that were fitted to a sample of rows."""

    values: Tensor  # (num_columns, num_rows, width)
    quantizer: ProductQuantizer | None  # None: the levels of int8, which need no search
    distortion: float  # mean squared error of a value of the sample, weighted
