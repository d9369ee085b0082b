"""`FrozenCollection`: the tables of all features, for inference, with bags pooled by plain operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from cce.collection import TableDict
from cce.serving.frozen_tables import FrozenTable, LookupHolder, are_readable, as_of_now, known_ids

Column = Tensor | tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]


class FrozenCollection(LookupHolder):
    """What `EmbeddingCollection` is, with frozen tables: ids of all features to vectors `(B, F, D)` of float32.

    Ids are `(B, F)`; or flat, with offsets `(F · B + 1)`; or a dictionary by feature, of ids `(B)` or of tuples: ids
    `(n)`, the starts of their bags `(B)` (as in `torch.nn.EmbeddingBag`) and, if any, weights `(n)`. The last is what
    exported programs take: its shapes depend on no value.

    unified: one table, named "all", whose ids are those of all features, one vocabulary after the other.
    """

    def __init__(
        self,
        features: Mapping[str, Any],
        tables: Mapping[str, FrozenTable],
        *,
        pooling: str = "sum",
        unified: bool = False,
        padding_idx: int | None = None,
    ) -> None:
        super().__init__()
        self.features = dict(features)
        self.tables = TableDict(dict(tables))
        self.embedding_dim = next(iter(tables.values())).embedding_dim
        self.pooling, self.unified, self.padding_idx = pooling, unified, padding_idx

    @property
    def num_features(self) -> int:
        return len(self.features)

    def forward(
        self,
        ids: Tensor | Mapping[str, Column],
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """Vectors `(B, F, D)`."""
        if isinstance(ids, Mapping):
            if set(ids) != set(self.features):
                names = ", ".join(self.features)
                raise ValueError(f"ids must name each feature once ({names}), got {', '.join(ids)}.")
            columns = [ids[name] for name in self.features]
        elif offsets is None:
            if not isinstance(ids, Tensor):
                raise TypeError(f"ids must be a Tensor of int32 or int64, got {type(ids).__name__}.")
            if ids.dim() != 2 or ids.shape[1] != self.num_features:
                raise ValueError(f"ids must have shape (batch, {self.num_features}), got {tuple(ids.shape)}.")
            if are_readable(ids):
                found = self.look_up(ids, (len(ids), self.num_features, self.embedding_dim))
                if found is not None:
                    return found
            columns = [ids[:, index] for index in range(self.num_features)]
        else:
            columns = _cut(ids, offsets, per_sample_weights, self.num_features)
        tables = as_of_now(self._tables())
        return torch.stack([self._column(index, column, tables) for index, column in enumerate(columns)], dim=1)

    def _column(self, index: int, column: Column, tables: Sequence[FrozenTable]) -> Tensor:
        """Vectors `(B, D)` of one feature."""
        if isinstance(column, Tensor):
            return self._look_up(index, column, tables)
        values, starts, *weights = column
        vectors = self._look_up(index, values, tables)
        bag = bag_of_each(starts.long(), values.shape[0])
        if weights:
            vectors = vectors * weights[0].unsqueeze(-1).to(vectors.dtype)
        pooled = vectors.new_zeros(starts.shape[0], self.embedding_dim).index_add(0, bag, vectors)
        if self.pooling == "sum":
            return pooled
        padding = self._padding(index)
        known = known_ids(values, list(self.features.values())[index])
        counted = torch.ones_like(values) if padding is None else (known != padding).long()
        counts = torch.zeros_like(starts).index_add(0, bag, counted.to(starts.dtype))
        return pooled / counts.clamp(min=1).unsqueeze(-1)

    def _look_up(self, index: int, ids: Tensor, tables: Sequence[FrozenTable]) -> Tensor:
        if not self.unified:
            return tables[index](ids)  # type: ignore[no-any-return]
        sizes = list(self.features.values())
        ids = known_ids(ids, sizes[index])
        vectors = tables[0](ids + sum(sizes[:index]))
        padding = self._padding(index)
        return vectors if padding is None else vectors.masked_fill((ids == padding).unsqueeze(-1), 0)  # type: ignore[no-any-return]

    def _padding(self, index: int) -> int | None:
        if not self.unified:
            return self._tables()[index].padding_idx
        return None if self.padding_idx is None else self.padding_idx % list(self.features.values())[index]

    def looked_up(self) -> Sequence[FrozenTable]:
        """The tables of all features; a common one is looked up column by column."""
        return [] if self.unified else self._tables()

    def _tables(self) -> Sequence[FrozenTable]:
        return list(self.tables.values())  # type: ignore[arg-type]


def bag_of_each(starts: Tensor, num_ids: int) -> Tensor:
    """Which bag each of `num_ids` ids is in: how many bags have begun, less one."""
    begun = starts.new_zeros(num_ids + 1).index_add(0, starts, torch.ones_like(starts))
    return begun.cumsum(0)[:num_ids] - 1


def _cut(ids: Tensor, offsets: Tensor, weights: Tensor | None, num_features: int) -> list[Column]:
    """Flat ids of all features as one column for each."""
    batch = (len(offsets) - 1) // num_features
    columns: list[Column] = []
    for index in range(num_features):
        own = offsets[index * batch : (index + 1) * batch + 1]
        first, last = int(own[0]), int(own[-1])
        bag = (ids[first:last], own[:-1] - first)
        columns.append(bag if weights is None else (*bag, weights[first:last]))
    return columns
