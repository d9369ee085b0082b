"""Hooks where a model looks tables up: which ids each row reads, vectors that are moved, and Jacobians in them.

A lookup is a call of a table, of an `EmbeddingBag` or of an `EmbeddingCollection`. Its output is taken out of the
autograd graph, moved, and put back as a leaf, so that one backward pass gives the Jacobian of every row's output.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from cce.collection import EmbeddingCollection
from cce.embeddings import Embedding, EmbeddingBag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Occurrences(NamedTuple):
    """Where the ids of a table occur in a batch; all on the CPU."""

    ids: Tensor  # (n)
    rows: Tensor  # (n), of the batch
    cells: Tensor  # (n): which vectors of the lookup's output they are in
    shares: Tensor | None  # (n): how much of an id's vector is in it; None: all of it
    num_rows: int  # of the lookup
    is_single: bool  # whether no row has two ids


@dataclass(frozen=True)
class Target:
    """Ids of one table that are to move, and their vectors now; everything else is fixed."""

    name: str  # of the table
    ids: Tensor  # (n), in order
    present: Tensor  # (n, embedding_dim) float32
    num_embeddings: int
    block_dim: int  # dimensions whose curvatures with each other are held
    slots: np.ndarray = field(init=False)  # (num_embeddings) int32: where an id is in `ids`, or -1

    def __post_init__(self) -> None:
        slots = np.full(self.num_embeddings, -1, np.int32)
        slots[self.ids.numpy()] = np.arange(len(self.ids), dtype=np.int32)
        object.__setattr__(self, "slots", slots)

    def find(self, occurrences: Occurrences) -> tuple[Tensor, Tensor]:
        """Which occurrences are of its ids, and where these are in `ids`."""
        slots = torch.from_numpy(self.slots[occurrences.ids.numpy()])
        at = (slots >= 0).nonzero().squeeze(1)
        return at, slots[at].long()


class Found(NamedTuple):
    """Ids of a target in the rows of a batch, each row and id once."""

    rows: Tensor  # (n) int64, of the batch
    slots: Tensor  # (n) int64, in the target's ids
    slopes: Tensor  # (n, embedding_dim): the Jacobian of the row's output in the id's vector, if there was a backward


class LookupHooks:
    """Hooks on every lookup of some tables of a model, while `attached`.

    tables: by name.
    """

    def __init__(self, model: nn.Module, tables: Mapping[str, nn.Module]) -> None:
        names = {table: name for name, table in tables.items()}
        self.readers: dict[nn.Module, Callable[..., dict[str, Occurrences]]] = {}
        for module in model.modules():
            if isinstance(module, EmbeddingBag) and module.table in names:
                self.readers[module] = _BagReader(names[module.table], module)
            elif isinstance(module, EmbeddingCollection) and any(table in names for table in module.tables.values()):
                self.readers[module] = _CollectionReader(module, names)
            elif module in names and isinstance(module, Embedding):
                self.readers[module] = _TableReader(names[module], module)
        self._recording: _Recording | None = None

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Have the hooks, which do nothing unless a batch is recorded."""
        handles = []
        try:
            for module in self.readers:
                handles.append(module.register_forward_pre_hook(self._begin))
                handles.append(module.register_forward_hook(self._end, with_kwargs=True))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def record(
        self, forward: Callable[[], Tensor], moves: Sequence[tuple[Target, Tensor]] = (), *, with_slopes: bool = False
    ) -> Recorded:
        """Run `forward` with the vectors of some ids moved.

        moves: targets, and how far each of their ids is moved `(n, embedding_dim)`.
        with_slopes: have the Jacobians too, by a backward pass.
        """
        recording = self._recording = _Recording(moves, with_slopes)
        try:
            with torch.set_grad_enabled(with_slopes):
                outputs = forward()
                slopes = _slopes(outputs, recording.leaves) if with_slopes else None
        finally:
            self._recording = None
        return Recorded(outputs.detach(), recording.lookups, slopes)

    def _begin(self, module: nn.Module, args: Any) -> None:
        del module, args
        if self._recording is not None:
            self._recording.depth += 1

    def _end(self, module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> Tensor | None:
        recording = self._recording
        if recording is None:
            return None
        recording.depth -= 1
        if recording.depth:
            return None  # a table that a bag or a collection looks up
        return recording.add(self.readers[module](*args, **kwargs), output)


class _Recording:
    """What the hooks see of one batch."""

    def __init__(self, moves: Sequence[tuple[Target, Tensor]], with_slopes: bool) -> None:  # noqa: FBT001
        self.moves, self.with_slopes, self.depth = moves, with_slopes, 0
        self.lookups: list[dict[str, Occurrences]] = []
        self.leaves: list[Tensor] = []

    def add(self, occurrences: dict[str, Occurrences], output: Tensor) -> Tensor:
        """One lookup; what the model gets in place of its output."""
        moved = output.detach().contiguous()
        moving = [(target, shift) for target, shift in self.moves if target.name in occurrences]
        moved = moved.clone() if moving else moved
        for target, shift in moving:
            found = occurrences[target.name]
            at, slots = target.find(found)
            steps = _scaled(shift[slots], found, at).to(moved)
            moved.view(-1, moved.shape[-1]).index_add_(0, found.cells[at].to(moved.device), steps)
        self.lookups.append(occurrences)
        if self.with_slopes:
            self.leaves.append(moved.requires_grad_())
        return moved


@dataclass(frozen=True)
class Recorded:
    """A batch that went through a model."""

    outputs: Tensor
    lookups: list[dict[str, Occurrences]]
    jacobians: list[Tensor] | None  # of each lookup, of the shape of its output

    def is_single(self, name: str) -> bool:
        """Whether no row reads two ids of a table."""
        found = [each[name].is_single for each in self.lookups if name in each]
        return found in ([], [True])

    def find(self, target: Target, kept: Tensor | None) -> Found:
        """The ids of a target in the rows that are kept, with their Jacobians if there are any."""
        parts = [self._find(target, index, kept) for index, each in enumerate(self.lookups) if target.name in each]
        if len(parts) == 1 and self.is_single(target.name):
            return parts[0]
        found = Found(
            torch.cat([part.rows for part in parts] or [torch.zeros(0, dtype=torch.int64)]),
            torch.cat([part.slots for part in parts] or [torch.zeros(0, dtype=torch.int64)]),
            torch.cat([part.slopes for part in parts] or [target.present[:0]]),
        )
        return _merged(found, len(target.ids))

    def _find(self, target: Target, index: int, kept: Tensor | None) -> Found:
        occurrences = self.lookups[index][target.name]
        at, slots = target.find(occurrences)
        rows = occurrences.rows[at]
        if kept is not None:
            some = kept[rows]
            at, slots, rows = at[some], slots[some], rows[some]
        if self.jacobians is None:
            return Found(rows, slots, target.present[:0])
        jacobian = self.jacobians[index]
        cells = occurrences.cells[at].to(jacobian.device)
        slopes = jacobian.reshape(-1, jacobian.shape[-1])[cells].float().cpu()
        return Found(rows, slots, _scaled(slopes, occurrences, at))

    def pairs(self, name: str, kept: Tensor | None) -> tuple[Tensor, Tensor]:
        """The rows that are kept and the ids that each reads of a table, each pair once."""
        parts = [each[name] for each in self.lookups if name in each]
        rows = torch.cat([part.rows for part in parts] or [torch.zeros(0, dtype=torch.int64)])
        ids = torch.cat([part.ids for part in parts] or [torch.zeros(0, dtype=torch.int64)])
        if not self.is_single(name):
            rows, ids = torch.unique(torch.stack([rows, ids]), dim=1)
        return (rows, ids) if kept is None else (rows[kept[rows]], ids[kept[rows]])


def _scaled(vectors: Tensor, occurrences: Occurrences, at: Tensor) -> Tensor:
    """Vectors of some occurrences, times how much of them is in the lookup's output."""
    return vectors if occurrences.shares is None else vectors * occurrences.shares[at].unsqueeze(1)


def _merged(found: Found, num_ids: int) -> Found:
    """An id that a row reads several times, once: its Jacobian is the sum."""
    keys, inverse = torch.unique(found.rows * num_ids + found.slots, return_inverse=True)
    slopes = found.slopes
    if len(slopes):
        slopes = slopes.new_zeros(len(keys), slopes.shape[1]).index_add_(0, inverse, slopes)
    return Found(keys // num_ids, keys % num_ids, slopes)


def _slopes(outputs: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    """The Jacobian of each row's output in what lookups gave: rows do not depend on each other."""
    if not outputs.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    return list(torch.autograd.grad(outputs.sum(), leaves, materialize_grads=True, allow_unused=True))


# -- which ids a lookup reads, by the arguments of its call ------------------------------------------------------------


@dataclass(frozen=True)
class _TableReader:
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
class _BagReader:
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


class _CollectionReader:
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


@contextmanager
def in_evaluation(model: nn.Module) -> Iterator[None]:
    """Without dropout and the like; every part goes back to the mode that it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
