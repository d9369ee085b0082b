"""Steps that an optimizer takes inside the backward pass of a lookup.

Sums of gradients go from the lookup straight to the rows of all codebooks, in one call. There is no gradient tensor for
each table, and nothing for autograd to add up. An optimizer attaches its step to codebooks; the lookup asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import WeakValueDictionary, ref

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

Array = np.ndarray[Any, Any]


class RowSums(NamedTuple):
    """Sums of gradients of all features, one after the other: of used rows, or of all rows where `rows` is None."""

    rows: Tensor | None  # int64, increasing for each feature
    first_rows: Array  # (features + 1): where the rows of each feature start
    values: Tensor
    first_values: Array  # (features + 1)


class RowStep(Protocol):
    """What an optimizer does with sums of gradients."""

    def is_ready(self, codebooks: Sequence[Tensor]) -> bool:
        """Whether it steps on row sums of these: several steps must add up to one."""
        ...

    def take(self, codebooks: Sequence[Tensor], sums: RowSums) -> None:
        """Update the rows of contiguous codebooks."""
        ...


class AttachedStep:
    """A step on a codebook, for as long as somebody holds this."""

    def __init__(self, codebook: Tensor, step: RowStep) -> None:
        self.codebook, self.step = ref(codebook), step
        _attached[id(codebook)] = self


_attached: WeakValueDictionary[int, AttachedStep] = WeakValueDictionary()


def find_step(codebooks: Sequence[Tensor]) -> RowStep | None:
    """The step of all codebooks that are trained, if they have one in common and no other hooks."""
    if not _attached:
        return None
    step = None
    for codebook in codebooks:
        if codebook.requires_grad:
            found = _attached.get(id(codebook))
            if found is None or found.codebook() is not codebook or codebook._backward_hooks:
                return None
            if step is not None and found.step is not step:
                return None
            step = found.step
    return step if step is not None and step.is_ready(codebooks) else None
