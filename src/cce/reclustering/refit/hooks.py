"""Hooks where a model looks tables up: which ids each row reads, vectors that are moved, and Jacobians in them.

A lookup is a call of a table, of an `EmbeddingBag` or of an `EmbeddingCollection`. Its output is taken out of the
autograd graph, moved, and put back as a leaf, so that one backward pass gives the Jacobian of every row's output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from cce.collection import EmbeddingCollection
from cce.embeddings import Embedding, EmbeddingBag
from cce.reclustering.refit.occurrences import BagReader, CollectionReader, Occurrences, TableReader


@dataclass(frozen=True)
class Target:
    """Ids of one table that are to move, and their vectors now; everything else is fixed."""

    name: str  # of the table
    ids: Tensor  # (n), in order
    present: Tensor  # (n, embedding_dim) float32
    num_embeddings: int
    block_dim: int  # dimensions whose Hessians with each other are held
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
    jacobians: (
        Tensor  # (n, embedding_dim): the Jacobian of the row's output in the id's vector, if there was a backward
    )


class LookupHooks:
    """Hooks on every lookup of some tables of a model, while `attached`.

    tables: by name.
    """

    def __init__(self, model: nn.Module, tables: Mapping[str, nn.Module]) -> None:
        names = {table: name for name, table in tables.items()}
        self.readers: dict[nn.Module, Callable[..., dict[str, Occurrences]]] = {}
        for module in model.modules():
            if isinstance(module, EmbeddingBag) and module.table in names:
                self.readers[module] = BagReader(names[module.table], module)
            elif isinstance(module, EmbeddingCollection) and any(table in names for table in module.tables.values()):
                self.readers[module] = CollectionReader(module, names)
            elif module in names and isinstance(module, Embedding):
                self.readers[module] = TableReader(names[module], module)
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
        self,
        forward: Callable[[], Tensor],
        moves: Sequence[tuple[Target, Tensor]] = (),
        *,
        with_jacobians: bool = False,
    ) -> Recorded:
        """Run `forward` with the vectors of some ids moved.

        moves: targets, and how far each of their ids is moved `(n, embedding_dim)`.
        with_jacobians: have the Jacobians too, by a backward pass.
        """
        recording = self._recording = _Recording(moves, with_jacobians)
        try:
            with torch.set_grad_enabled(with_jacobians):
                outputs = forward()
                jacobians = _jacobians(outputs, recording.leaves) if with_jacobians else None
        finally:
            self._recording = None
        return Recorded(outputs.detach(), recording.lookups, jacobians)

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

    def __init__(self, moves: Sequence[tuple[Target, Tensor]], with_jacobians: bool) -> None:  # noqa: FBT001
        self.moves, self.with_jacobians, self.depth = moves, with_jacobians, 0
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
        if self.with_jacobians:
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
            torch.cat([part.jacobians for part in parts] or [target.present[:0]]),
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
        jacobians = jacobian.reshape(-1, jacobian.shape[-1])[cells].float().cpu()
        return Found(rows, slots, _scaled(jacobians, occurrences, at))

    def pairs(self, name: str) -> tuple[Tensor, Tensor]:
        """The rows that read a table, and the ids that they read."""
        parts = [each[name] for each in self.lookups if name in each]
        rows = torch.cat([part.rows for part in parts] or [torch.zeros(0, dtype=torch.int64)])
        return rows, torch.cat([part.ids for part in parts] or [torch.zeros(0, dtype=torch.int64)])


def _scaled(vectors: Tensor, occurrences: Occurrences, at: Tensor) -> Tensor:
    """Vectors of some occurrences, times how much of them is in the lookup's output."""
    return vectors if occurrences.shares is None else vectors * occurrences.shares[at].unsqueeze(1)


def _merged(found: Found, num_ids: int) -> Found:
    """An id that a row reads several times, once: its Jacobian is the sum."""
    keys, inverse = torch.unique(found.rows * num_ids + found.slots, return_inverse=True)
    jacobians = found.jacobians
    if len(jacobians):
        jacobians = jacobians.new_zeros(len(keys), jacobians.shape[1]).index_add_(0, inverse, jacobians)
    return Found(keys // num_ids, keys % num_ids, jacobians)


def _jacobians(outputs: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    """The Jacobian of each row's output in what lookups gave: rows do not depend on each other."""
    if not outputs.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    return list(torch.autograd.grad(outputs.sum(), leaves, materialize_grads=True, allow_unused=True))


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
