"""Which ids the rows of a batch read of a table, by the arguments of the call that looks them up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from cce.collection import EmbeddingCollection
    from cce.embeddings import Embedding, EmbeddingBag


class Occurrences(NamedTuple):
    """Where the ids of a table occur in a batch; all on the CPU."""

    ids: Tensor  # (n)
    rows: Tensor  # (n), of the batch
    cells: Tensor  # (n): which vectors of the lookup's output they are in
    shares: Tensor | None  # (n): how much of an id's vector is in it; None: all of it
    num_rows: int  # of the lookup
    is_single: bool  # whether no row has two ids


@dataclass(frozen=True)
class TableReader:
    """Of a call of a table."""

    name: str
    table: Embedding

    def __call__(self, input: Tensor) -> dict[str, Occurrences]:  # noqa: A002  # torch's name for it
        """Ids `(rows, …)`."""
        flat, num_rows = input.reshape(-1).cpu().long(), len(input) if input.dim() else 0
        cells = torch.arange(len(flat))
        width = max(1, len(flat) // max(1, num_rows))
        found = Occurrences(flat, cells // width, cells, None, num_rows, width == 1)
        return {self.name: _without(self.table.padding_idx, found)}


@dataclass(frozen=True)
class BagReader:
    """Of a call of a bag."""

    name: str
    bag: EmbeddingBag

    def __call__(
        self,
        input: Tensor,  # noqa: A002  # torch's name for it
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> dict[str, Occurrences]:
        """Ids `(rows, length)`, or `(n)` with offsets."""
        if self.bag.mode == "max":
            raise ValueError(f"table {self.name!r} must be in a bag of sums or means to be refitted, got mode='max'.")
        ids, bounds = input.reshape(-1), offsets
        if bounds is None:
            bounds = torch.arange(0, len(ids) + 1, input.shape[1]) if input.shape[1] else torch.zeros(len(input) + 1)
        elif not self.bag.include_last_offset:
            bounds = torch.cat([bounds, bounds.new_tensor([len(ids)])])
        weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
        is_mean = self.bag.mode == "mean"
        return {self.name: _in_bags(ids, bounds, weights, padding_idx=self.bag.padding_idx, is_mean=is_mean)}


class CollectionReader:
    """Of a call of a collection."""

    def __init__(self, collection: EmbeddingCollection, names: Mapping[nn.Module, str]) -> None:
        if collection.unified:
            raise ValueError("a collection must have a table for each feature to be refitted, got a unified one.")
        self.collection = collection
        self.names = {feature: names[table] for feature, table in collection.tables.items() if table in names}

    def __call__(
        self, ids: Tensor | Mapping[str, Any], offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> dict[str, Occurrences]:
        """Ids `(rows, features)`, `(n)` with offsets, or by name: see `EmbeddingCollection`."""
        found: dict[str, Occurrences] = {}
        for index, feature in enumerate(self.collection.features):
            if feature not in self.names:
                continue
            padding = self.collection.tables[feature].padding_idx
            own = self._own(index, feature, ids, offsets, per_sample_weights)
            each = _in_bags(*own, padding_idx=padding, is_mean=self.collection.pooling == "mean")  # type: ignore[arg-type]
            name = self.names[feature]
            each = each._replace(cells=each.cells * self.collection.num_features + index)
            found[name] = _joined(found[name], each) if name in found else each
        return found

    def _own(
        self, index: int, feature: str, ids: Any, offsets: Tensor | None, weights: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Ids, offsets and weights of one feature; no offsets where rows have one id each."""
        if isinstance(ids, Mapping):
            own = ids[feature]
            return (own.reshape(-1), None, None) if isinstance(own, Tensor) else (*own, None)[:3]
        if offsets is None:
            return ids[:, index], None, None
        num_rows = (len(offsets) - 1) // self.collection.num_features
        bounds = offsets[index * num_rows : (index + 1) * num_rows + 1]
        first, last = int(bounds[0]), int(bounds[-1])
        return ids[first:last], bounds - first, None if weights is None else weights[first:last]


def _in_bags(
    ids: Tensor, bounds: Tensor | None, weights: Tensor | None, *, padding_idx: int | None, is_mean: bool
) -> Occurrences:
    """Ids of bags, one for each row, from bound to bound; a bag's vector is that of its row."""
    if bounds is None:
        rows = torch.arange(len(ids))
        return _without(padding_idx, Occurrences(ids.cpu().long(), rows, rows, None, len(ids), is_single=True))
    lengths = bounds.cpu().long().diff()
    rows = torch.repeat_interleave(lengths)
    flat = ids[: len(rows)].cpu().long()
    shares = None if weights is None else weights[: len(rows)].detach().float().cpu()
    if is_mean:
        counted = torch.ones_like(rows) if padding_idx is None else (flat != padding_idx).long()
        shares = 1 / torch.zeros_like(lengths).index_add_(0, rows, counted).clamp(min=1)[rows]
    is_single = bool((lengths <= 1).all())
    return _without(padding_idx, Occurrences(flat, rows, rows, shares, len(lengths), is_single))


def _without(padding_idx: int | None, found: Occurrences) -> Occurrences:
    """Ids but the padding, which reads zeros."""
    if padding_idx is None:
        return found
    real = found.ids != padding_idx
    shares = None if found.shares is None else found.shares[real]
    return found._replace(ids=found.ids[real], rows=found.rows[real], cells=found.cells[real], shares=shares)


def _joined(one: Occurrences, other: Occurrences) -> Occurrences:
    """Two features of a lookup that share a table."""
    shares = [torch.ones(len(each.ids)) if each.shares is None else each.shares for each in (one, other)]
    ids, rows, cells = (torch.cat([getattr(each, name) for each in (one, other)]) for name in ("ids", "rows", "cells"))
    return Occurrences(ids, rows, cells, torch.cat(shares), one.num_rows, is_single=False)
