"""Training rows from a loader: batches of any form, in the same order in every pass."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from cce.embeddings import CCEEmbedding
from cce.reclustering.refit.rows import Piece, Selection, Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from cce.reclustering.refit.hooks import Recorded

    Batches = Iterable[Any] | Callable[[], Iterable[Any]]
    Forward = Callable[[Any], tuple[Tensor, Any]]
    Loss = Callable[[Tensor, Any], Tensor]

MIX = 0x9E3779B97F4A7C15 - (1 << 64)  # an odd number, as int64
PROBABILITIES = "the model's outputs all lie in [0, 1], as after a sigmoid; the default loss takes logits."


class BatchRows(Source):
    """The rows of batches, numbered as they come.

    batches: an iterable, such as a DataLoader that does not shuffle, or a function that returns one.
    forward: a batch to the model's outputs and what the loss compares them with.
    loss: outputs and targets to the loss of each row; None: cross-entropy of logits.
    """

    def __init__(self, model: nn.Module, batches: Batches, *, forward: Forward | None, loss: Loss | None) -> None:
        if not callable(batches) and (isinstance(batches, Iterator) or not isinstance(batches, Iterable)):
            raise TypeError(
                f"batches must be iterable again and again, or a function that returns an iterator, got {batches!r}."
            )
        self.tables = find_tables(model)
        self.batches, self.given_forward, self.given_loss = batches, forward, loss
        self.model, self.device = model, next(model.parameters()).device
        self.first_pass: _Pass | None = None  # what every other pass must be like
        self._pass = _Pass()

    def __len__(self) -> int:
        return 0 if self.first_pass is None else self.first_pass.num_rows

    def pieces(self, selection: Selection, size: int) -> Iterator[Piece]:
        """The batches as they come, however large; the first pass says what the next ones must be."""
        del selection, size
        self._pass = _Pass()
        for inputs in self.batches() if callable(self.batches) else self.batches:
            yield Piece(inputs)
        if self.first_pass is None:
            self._check_first(self._pass)
            self.first_pass = self._pass
        elif len(self._pass.checksums) != len(self.first_pass.checksums):
            numbers = len(self.first_pass.checksums), len(self._pass.checksums)
            raise ValueError(f"batches must be as many in every pass, {numbers[0]}, got {numbers[1]}.")

    def forward(self, piece: Piece) -> Tensor:
        """The model's outputs `(rows)`."""
        forward = self.given_forward or self._forward
        outputs, piece.target = forward(piece.inputs)
        if not isinstance(outputs, Tensor):
            raise TypeError(
                f"model must give a Tensor of one output for each row, got {type(outputs).__name__}: "
                "forward=lambda batch: (outputs, targets) says which."
            )
        if outputs.dim() not in (1, 2) or outputs.numel() != len(outputs):
            shape = tuple(outputs.shape)
            raise ValueError(f"model must have one output for each row to be refitted, got outputs of shape {shape}.")
        return outputs.reshape(-1).float()

    def look_up(self, piece: Piece) -> Tensor:
        """The whole model: nothing else knows which ids a batch has."""
        return self.forward(piece)

    def losses(self, outputs: Tensor, piece: Piece) -> Tensor:
        """The loss of each row."""
        losses = (self.given_loss or binary_cross_entropy)(outputs, piece.target)
        if losses.numel() != len(outputs):
            shape = tuple(losses.shape)
            raise ValueError(
                f"loss must give one value for each of {len(outputs)} rows (reduction='none'), got shape {shape}."
            )
        return losses.reshape(-1)

    def kept(self, piece: Piece, recorded: Recorded, selection: Selection) -> Tensor | None:
        """Which rows are selected; the ids must be those of the first pass."""
        num_rows = len(recorded.outputs)
        for name, found in ((name, found) for lookup in recorded.lookups for name, found in lookup.items()):
            if found.num_rows != num_rows:
                raise ValueError(
                    f"table {name!r} must be looked up with ids whose first dimension is that of the model's outputs, "
                    f"{num_rows}, got {found.num_rows}."
                )
        piece.numbers = np.arange(self._pass.num_rows, self._pass.num_rows + num_rows)
        self._pass.add(recorded)
        index = len(self._pass.checksums)
        if self.first_pass is not None and self._pass.checksums[-1:] != self.first_pass.checksums[index - 1 : index]:
            raise ValueError(
                f"batches must come in the same order in every pass, got other ids in batch {index - 1}: "
                "a DataLoader must not shuffle, and a data set must not draw rows at random."
            )
        return torch.from_numpy(selection.mask(piece.numbers))

    def _check_first(self, found: _Pass) -> None:
        if not found.num_rows:
            raise ValueError("batches must have rows, got none.")
        if self.given_loss is None and found.low >= 0 and found.high <= 1:
            warnings.warn(PROBABILITIES, stacklevel=2)

    def _forward(self, batch: Any) -> tuple[Tensor, Any]:
        if not isinstance(batch, tuple | list) or len(batch) < 2:
            raise TypeError(
                f"batches must be tuples of inputs and a target, got {type(batch).__name__}: "
                "forward=lambda batch: (outputs, targets) says how a batch goes through the model."
            )
        *inputs, target = _moved(batch, self.device)
        return self.model(*inputs), target


@dataclass
class _Pass:
    """What came in one pass over the batches."""

    checksums: list[int] = field(default_factory=list)  # of the ids of each batch
    num_rows: int = 0
    low: float = torch.inf  # of the outputs
    high: float = -torch.inf

    def add(self, recorded: Recorded) -> None:
        """A batch."""
        self.checksums.append(_checksum(recorded))
        self.num_rows += len(recorded.outputs)
        if len(recorded.outputs):
            low, high = recorded.outputs.aminmax()
            self.low, self.high = min(self.low, float(low)), max(self.high, float(high))


def binary_cross_entropy(outputs: Tensor, target: Any) -> Tensor:
    """Of logits and targets in [0, 1], for each row."""
    if not isinstance(target, Tensor) or target.numel() != len(outputs):
        found = tuple(target.shape) if isinstance(target, Tensor) else type(target).__name__
        raise ValueError(f"targets must be a Tensor of {len(outputs)} values for the default loss, got {found}.")
    labels = target.reshape(-1).to(outputs)
    if bool(((labels < 0) | (labels > 1)).any()):
        wrong = labels[(labels < 0) | (labels > 1)][0].item()
        raise ValueError(f"targets must lie in [0, 1] for the default loss, got {wrong:g}.")
    return nn.functional.binary_cross_entropy_with_logits(outputs, labels, reduction="none")


def find_tables(model: nn.Module) -> dict[str, CCEEmbedding]:
    """The tables of a model that can be refitted, by name; all of its `cce` tables must be finalized."""
    tables = {name: module for name, module in model.named_modules() if isinstance(module, CCEEmbedding)}
    if not tables:
        raise ValueError('model must have tables of method "cce" to be refitted, got none.')
    rest = [name for name, table in tables.items() if not table.is_final]
    if rest:
        raise ValueError(f"tables must be finalized before they are refitted (cce.finalize), got int8 rows in {rest}.")
    return tables


def _checksum(recorded: Recorded) -> int:
    """Of all ids and the rows that read them, in their order."""
    total = 0
    for lookup in recorded.lookups:
        for found in lookup.values():
            places = torch.arange(1, len(found.ids) + 1)
            mixed = (found.ids * MIX + found.rows) * (2 * places + 1)
            total = (31 * total + int((mixed ^ (mixed >> 29)).sum())) % 2**64
    return total


def _moved(value: Any, device: torch.device) -> Any:
    """Tensors on a device, in tuples, lists and dictionaries too."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {name: _moved(each, device) for name, each in value.items()}
    return [_moved(each, device) for each in value] if isinstance(value, tuple | list) else value
