"""Gradients of rows that are no parameters: lookups add them in backward, and an optimizer takes them."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor


class RowGradients:
    """Rows and their gradients, as they came: a row that was looked up several times is there as often."""

    def __init__(self) -> None:
        self._rows: list[Tensor] = []
        self._values: list[Tensor] = []

    @property
    def nbytes(self) -> int:
        """Bytes that wait for the optimizer."""
        return sum(tensor.nbytes for tensor in (*self._rows, *self._values))

    def watch(self, vectors: Tensor, rows: Tensor) -> None:
        """Add the gradient of `vectors` `(n, width)` when backward has it; a row of −1 counts for nothing."""
        vectors.register_hook(partial(self._add, rows))  # type: ignore[no-untyped-call]

    def take(self) -> tuple[Tensor, Tensor] | None:
        """Everything since the last time: rows `(n)` and values `(n, width)`; None if there was no backward."""
        if not self._rows:
            return None
        taken = torch.cat(self._rows), torch.cat(self._values)
        self.clear()
        return taken

    def clear(self) -> None:
        """Forget everything."""
        self._rows, self._values = [], []

    def _add(self, rows: Tensor, grad: Tensor) -> None:
        self._rows.append(rows)
        self._values.append(grad.detach())
