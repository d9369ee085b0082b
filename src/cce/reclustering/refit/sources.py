"""Training rows that a refit passes over again and again: batches, how they go through the model, and their loss."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sized
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from cce.embeddings import CCEEmbedding

if TYPE_CHECKING:
    from collections.abc import Callable

    from cce.reclustering.refit.lookups import LookupHooks, Recorded

    Batches = Iterable[Any] | Callable[[], Iterable[Any]]
    Forward = Callable[[Any], tuple[Tensor, Any]]
    Loss = Callable[[Tensor, Any], Tensor]

PROBABILITIES = "the model's outputs all lie in [0, 1], as after a sigmoid; the default loss takes logits."


class Source:
    """The rows of batches, in any order.

    batches: an iterable, such as a DataLoader, or a function that returns one.
    forward: a batch to the model's outputs and what the loss compares them with.
    loss: outputs and targets to the loss of each row; None: cross-entropy of logits.
    """

    def __init__(
        self, model: nn.Module, batches: Batches, *, forward: Forward | None = None, loss: Loss | None = None
    ) -> None:
        if not callable(batches) and (isinstance(batches, Iterator) or not isinstance(batches, Iterable)):
            raise TypeError(
                f"batches must be iterable again and again, or a function that returns an iterator, got {batches!r}."
            )
        self.tables: Mapping[str, CCEEmbedding] = find_tables(model)  # by name
        self.batches, self.given_forward, self.loss = batches, forward, loss
        self.model, self.device = model, next(model.parameters()).device
        self.num_batches: int | None = len(batches) if isinstance(batches, Sized) else None

    def recorded(self, hooks: LookupHooks) -> Iterator[tuple[Recorded, Tensor, Tensor]]:
        """All rows, batch by batch, with the first and second derivatives of their losses in the outputs."""
        num_batches, num_rows, bounds = 0, 0, list[float]()
        for batch in self.batches() if callable(self.batches) else self.batches:
            targets: list[Any] = []
            recorded = hooks.record(partial(self._forward, batch, targets))
            _check_rows(recorded)
            num_batches, num_rows = num_batches + 1, num_rows + len(recorded.outputs)
            if len(recorded.outputs):
                bounds += map(float, recorded.outputs.aminmax())
            yield recorded, *self._derivatives(recorded.outputs, targets[0])
        if not num_rows:
            raise ValueError("batches must have rows, got none.")
        if self.loss is None and min(bounds) >= 0 and max(bounds) <= 1:
            warnings.warn(PROBABILITIES, stacklevel=2)
        self.num_batches = num_batches

    def _forward(self, batch: Any, targets: list[Any]) -> Tensor:
        """The model's outputs `(rows)`; adds what they are compared with to `targets`."""
        outputs, target = (self.given_forward or self._default_forward)(batch)
        targets.append(target)
        if not isinstance(outputs, Tensor):
            raise TypeError(
                f"model must give a Tensor of one output for each row, got {type(outputs).__name__}: "
                "forward=lambda batch: (outputs, targets) says which."
            )
        if outputs.dim() not in (1, 2) or outputs.numel() != len(outputs):
            shape = tuple(outputs.shape)
            raise ValueError(f"model must have one output for each row to be refitted, got outputs of shape {shape}.")
        return outputs.reshape(-1).float()

    def _default_forward(self, batch: Any) -> tuple[Tensor, Any]:
        if not isinstance(batch, tuple | list) or len(batch) < 2:
            raise TypeError(
                f"batches must be tuples of inputs and a target, got {type(batch).__name__}: "
                "forward=lambda batch: (outputs, targets) says how a batch goes through the model."
            )
        *inputs, target = _moved(batch, self.device)
        return self.model(*inputs), target

    def _derivatives(self, outputs: Tensor, target: Any) -> tuple[Tensor, Tensor]:
        """The first derivative of each row's loss in its output, and the second one, which is held above zero."""
        if self.loss is None:  # of cross-entropy: written out, as autograd takes longer
            chances = outputs.sigmoid()
            return (chances - _labels(outputs, target)).cpu(), (chances * (1 - chances)).cpu()
        with torch.enable_grad():
            outputs = outputs.detach().requires_grad_()
            losses = self._losses(self.loss, outputs, target).sum()
            (first,) = torch.autograd.grad(losses, outputs, create_graph=True)
            if not first.requires_grad:
                raise ValueError("loss must be twice differentiable in the model's output, got a constant slope.")
            (second,) = torch.autograd.grad(first.sum(), outputs)
        return first.detach().float().cpu(), second.clamp(min=0).float().cpu()

    @staticmethod
    def _losses(loss: Loss, outputs: Tensor, target: Any) -> Tensor:
        losses = loss(outputs, target)
        if losses.numel() != len(outputs):
            shape = tuple(losses.shape)
            raise ValueError(
                f"loss must give one value for each of {len(outputs)} rows (reduction='none'), got shape {shape}."
            )
        return losses.reshape(-1)


def _labels(outputs: Tensor, target: Any) -> Tensor:
    """Targets in [0, 1] of the default loss, cross-entropy of logits."""
    if not isinstance(target, Tensor) or target.numel() != len(outputs):
        found = tuple(target.shape) if isinstance(target, Tensor) else type(target).__name__
        raise ValueError(f"targets must be a Tensor of {len(outputs)} values for the default loss, got {found}.")
    labels = target.reshape(-1).to(outputs)
    wrong = labels[(labels < 0) | (labels > 1)]
    if len(wrong):
        raise ValueError(f"targets must lie in [0, 1] for the default loss, got {wrong[0].item():g}.")
    return labels


def find_tables(model: nn.Module) -> dict[str, CCEEmbedding]:
    """The tables of a model that can be refitted, by name; all of its `cce` tables must be finalized."""
    tables = {name: module for name, module in model.named_modules() if isinstance(module, CCEEmbedding)}
    if not tables:
        raise ValueError('model must have tables of method "cce" to be refitted, got none.')
    rest = [name for name, table in tables.items() if not table.is_final]
    if rest:
        raise ValueError(f"tables must be finalized before they are refitted (cce.finalize), got int8 rows in {rest}.")
    sharded = [name for name, table in tables.items() if table.is_sharded]
    if sharded:
        raise ValueError(
            f"tables must be whole to be refitted (cce.embeddings.unshard), got sharded ones in {sharded}."
        )
    return tables


def _check_rows(recorded: Recorded) -> None:
    """Reject a lookup of other rows than those of the model's outputs."""
    num_rows = len(recorded.outputs)
    for name, found in ((name, found) for lookup in recorded.lookups for name, found in lookup.items()):
        if found.num_rows != num_rows:
            raise ValueError(
                f"table {name!r} must be looked up with ids whose first dimension is that of the model's outputs, "
                f"{num_rows}, got {found.num_rows}."
            )


def _moved(value: Any, device: torch.device) -> Any:
    """A batch with its tensors on a device, in tuples, lists and dictionaries too."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {name: _moved(each, device) for name, each in value.items()}
    return [_moved(each, device) for each in value] if isinstance(value, tuple | list) else value
