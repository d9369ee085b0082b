"""Hooks where a model looks tables up: which ids each row reads, and the Jacobian of its output in their vectors.

A lookup is a call of a table, of an `EmbeddingBag` or of an `EmbeddingCollection`. Its output is taken out of the
autograd graph and put back as a leaf, so that one backward pass gives the Jacobian of every row's output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from cce.collection import EmbeddingCollection
from cce.embeddings import Embedding, EmbeddingBag
from cce.indexing import make_key, scramble, uniform

if TYPE_CHECKING:
    import numpy as np


class Occurrences(NamedTuple):
    """Where the ids of a table occur in a batch; all on the CPU."""

    ids: Tensor  # (n)
    rows: Tensor  # (n), of the batch
    cells: Tensor  # (n): which vectors of the lookup's output they are in
    shares: Tensor | None  # (n): how much of an id's vector is in it; None: all of it
    num_rows: int  # of the lookup
    is_single: bool  # whether no row has two ids


class Found(NamedTuple):
    """Ids of a table in the rows of a batch, each row and id once."""

    rows: Tensor  # (n) int64, of the batch
    slots: Tensor  # (n) int32, of the ids: -1 if it has none
    cells: Tensor  # (n) int64: which of the Jacobians each has
    jacobians: Tensor  # (cells, embedding_dim): of the row's output in the id's vector


@dataclass(frozen=True)
class Recorded:
    """A batch that went through a model."""

    outputs: Tensor  # (rows)
    lookups: list[dict[str, Occurrences]]
    jacobians: list[Tensor]  # of each lookup, of the shape of its output

    def parts(self, num_parts: int) -> Tensor:
        """Which part of all training rows each row is in: by a hash of its ids, so that rows may come in any order."""
        keys = torch.zeros(len(self.outputs), dtype=torch.int64)
        every = (each for lookup in self.lookups for each in lookup.values())
        for index, each in enumerate(every):
            keys.index_add_(0, each.rows, scramble(each.ids + make_key(0, index)))
        return (uniform(0, keys) * num_parts).long()

    def find(self, name: str, slots: np.ndarray, rows: Tensor | None = None) -> Found:
        """The ids of a table, with their slots; those of other rows than `rows`, a mask, have none."""
        found = [(each[name], own) for each, own in zip(self.lookups, self.jacobians, strict=True) if name in each]
        parts = [_find(occurrences, jacobians, slots, rows) for occurrences, jacobians in found]
        if len(parts) == 1 and found[0][0].is_single:
            return parts[0]
        has_slot = [part.slots >= 0 for part in parts]
        pairs = [(part.rows * len(slots) + part.slots)[has] for part, has in zip(parts, has_slot, strict=True)]
        own = [part.jacobians[part.cells[has]] for part, has in zip(parts, has_slot, strict=True)]
        # an id that a row reads several times, once: its Jacobian is the sum
        keys, inverse = torch.unique(torch.cat([torch.zeros(0, dtype=torch.int64), *pairs]), return_inverse=True)
        jacobians = torch.cat(own) if own else torch.zeros(0, 0)
        summed = jacobians.new_zeros(len(keys), jacobians.shape[1]).index_add_(0, inverse, jacobians)
        return Found(keys // len(slots), (keys % len(slots)).int(), torch.arange(len(keys)), summed)


def _find(occurrences: Occurrences, jacobians: Tensor, slots: np.ndarray, rows: Tensor | None) -> Found:
    own = torch.from_numpy(slots[occurrences.ids.numpy()])
    if rows is not None:
        own = torch.where(rows[occurrences.rows], own, -1)
    cells, vectors = occurrences.cells, jacobians.reshape(-1, jacobians.shape[-1]).float().cpu()
    if occurrences.shares is not None:
        cells, vectors = torch.arange(len(cells)), vectors[cells] * occurrences.shares.unsqueeze(1)
    return Found(occurrences.rows, own, cells, vectors)


class LookupHooks:
    """Hooks on every lookup of some tables of a model, while `attached`.

    tables: by name.
    """

    def __init__(self, model: nn.Module, tables: Mapping[str, nn.Module]) -> None:
        names = {table: name for name, table in tables.items()}
        self.model = model
        self.readers: dict[nn.Module, Callable[..., dict[str, Occurrences]]] = {}
        for module in model.modules():
            if isinstance(module, EmbeddingBag) and module.table in names:
                self.readers[module] = partial(_read_bag, names[module.table], module)
            elif isinstance(module, EmbeddingCollection) and any(table in names for table in module.tables.values()):
                if module.unified:
                    raise ValueError("a collection must have a table for each feature to be refitted, got one for all.")
                own = {feature: names[table] for feature, table in module.tables.items() if table in names}
                self.readers[module] = partial(_read_collection, own, module)
            elif module in names and isinstance(module, Embedding):
                self.readers[module] = partial(_read_table, names[module], module)
        self._depth, self._lookups, self._leaves = 0, list[dict[str, Occurrences]](), list[Tensor]()

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Have the hooks, and the model without dropout and the like; every part goes back to the mode that it had."""
        handles, modes = [], [(module, module.training) for module in self.model.modules()]
        try:
            self.model.eval()
            for module in self.readers:
                handles.append(module.register_forward_pre_hook(self._begin))
                handles.append(module.register_forward_hook(self._end, with_kwargs=True))
            yield
        finally:
            for handle in handles:
                handle.remove()
            for module, mode in modes:
                module.training = mode

    def record(self, forward: Callable[[], Tensor]) -> Recorded:
        """Run `forward`, and a backward pass."""
        self._depth, self._lookups, self._leaves = 0, [], []
        with torch.enable_grad():
            outputs = forward()
            if not outputs.requires_grad:
                raise ValueError("model must give outputs with gradients to be refitted, got detached ones.")
            # rows do not depend on each other, so the sum has the Jacobian of each
            found = torch.autograd.grad(outputs.sum(), self._leaves, materialize_grads=True, allow_unused=True)
        return Recorded(outputs.detach(), self._lookups, list(found))

    def _begin(self, module: nn.Module, args: Any) -> None:
        del module, args
        self._depth += 1

    def _end(self, module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> Tensor | None:
        self._depth -= 1
        if self._depth:
            return None  # a table that a bag or a collection looks up
        self._lookups.append(self.readers[module](*args, **kwargs))
        self._leaves.append(output.detach().contiguous().requires_grad_())
        return self._leaves[-1]


def _read_table(name: str, table: Embedding, input: Tensor) -> dict[str, Occurrences]:  # noqa: A002  # torch's name
    """Of a call of a table with ids `(rows, …)`."""
    flat, num_rows = input.reshape(-1).cpu().long(), len(input) if input.dim() else 0
    cells = torch.arange(len(flat))
    width = max(1, len(flat) // max(1, num_rows))
    found = Occurrences(flat, cells // width, cells, None, num_rows, width == 1)
    return {name: _without(table.padding_idx, found)}


def _read_bag(
    name: str,
    bag: EmbeddingBag,
    input: Tensor,  # noqa: A002  # torch's name for it
    offsets: Tensor | None = None,
    per_sample_weights: Tensor | None = None,
) -> dict[str, Occurrences]:
    """Of a call of a bag with ids `(rows, length)`, or `(n)` with offsets."""
    if bag.mode == "max":
        raise ValueError(f"table {name!r} must be in a bag of sums or means to be refitted, got mode='max'.")
    ids, bounds = input.reshape(-1), offsets
    if bounds is None:
        bounds = torch.arange(0, len(ids) + 1, input.shape[1]) if input.shape[1] else torch.zeros(len(input) + 1)
    elif not bag.include_last_offset:
        bounds = torch.cat([bounds, bounds.new_tensor([len(ids)])])
    weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    return {name: _in_bags(ids, bounds, weights, padding_idx=bag.padding_idx, is_mean=bag.mode == "mean")}


def _read_collection(
    names: Mapping[str, str],  # of tables, by feature
    collection: EmbeddingCollection,
    ids: Tensor | Mapping[str, Any],
    offsets: Tensor | None = None,
    per_sample_weights: Tensor | None = None,
) -> dict[str, Occurrences]:
    """Of a call of a collection with ids `(rows, features)`, `(n)` with offsets, or by name."""
    found: dict[str, Occurrences] = {}
    for index, feature in enumerate(collection.features):
        if feature not in names:
            continue
        padding: Any = collection.tables[feature].padding_idx
        own: tuple[Any, ...]
        if isinstance(ids, Mapping):
            given = ids[feature]
            own = (given.reshape(-1), None, None) if isinstance(given, Tensor) else (*given, None)[:3]
        elif offsets is None:
            own = ids[:, index], None, None
        else:
            num_rows = (len(offsets) - 1) // collection.num_features
            bounds = offsets[index * num_rows : (index + 1) * num_rows + 1]
            part = slice(int(bounds[0]), int(bounds[-1]))
            own = ids[part], bounds - bounds[0], None if per_sample_weights is None else per_sample_weights[part]
        each = _in_bags(*own, padding_idx=padding, is_mean=collection.pooling == "mean")
        each = each._replace(cells=each.cells * collection.num_features + index)
        name = names[feature]
        found[name] = _joined(found[name], each) if name in found else each
    return found


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
