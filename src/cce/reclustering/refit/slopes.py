"""What a model answers if vectors were others: logits, and their slopes in those vectors."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from cce.collection import EmbeddingCollection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cce.schema import Batch


def cross_entropy(logits: Tensor, batch: Batch) -> Tensor:
    """The binary cross-entropy of each row, times its weight if rows have weights."""
    return nn.functional.binary_cross_entropy_with_logits(logits, batch.labels, weight=batch.weights, reduction="none")


def find_collection(model: nn.Module) -> EmbeddingCollection:
    """The one collection of a model."""
    found = [module for module in model.modules() if isinstance(module, EmbeddingCollection)]
    if len(found) != 1 or found[0].unified:
        what = "a unified one" if found and found[0].unified else str(len(found))
        raise ValueError(f"model must have one EmbeddingCollection with a table for each feature, got {what}.")
    return found[0]


class Probe:
    """The model on some rows, with its vectors `(rows, features, embedding_dim)` looked up once and then moved."""

    def __init__(self, model: nn.Module, tables: EmbeddingCollection, batch: Batch) -> None:
        self.model, self.tables, self.batch = model, tables, batch
        with torch.no_grad():
            self.vectors = tables(batch.ids, batch.offsets)

    @torch.no_grad()
    def move(self, feature: int, rows: Tensor, shifts: Tensor) -> None:
        """Add to the vectors of a feature in some rows; a row that comes twice is moved twice."""
        self.vectors[:, feature].index_add_(0, rows.to(self.vectors.device), shifts.to(self.vectors))

    @torch.no_grad()
    def logits(self) -> Tensor:
        """Logits `(rows)`."""
        return self._run(self.vectors)

    def slopes(self) -> tuple[Tensor, Tensor]:
        """Logits `(rows)`, and the slope of each in the vectors of its row `(rows, features, embedding_dim)`."""
        with torch.enable_grad():
            vectors = self.vectors.detach().requires_grad_()
            logits = self._run(vectors)
            (slopes,) = torch.autograd.grad(logits.sum(), vectors)
        return logits.detach(), slopes

    def _run(self, vectors: Tensor) -> Tensor:
        with _returning(self.tables, vectors):
            return self.model(self.batch).float()  # type: ignore[no-any-return]


@contextmanager
def _returning(tables: nn.Module, vectors: Tensor) -> Iterator[None]:
    """Let `tables` answer `vectors` to whatever it is asked."""

    def answer(*ids: object, **options: object) -> Tensor:
        del ids, options
        return vectors

    tables.forward = answer
    try:
        yield
    finally:
        del tables.forward


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
