"""The rule for ids: int32 or int64, from 0 up to the size of the vocabulary.

Hashing would swallow any number, and a negative one would wrap to the last row, so the rule is checked at the door.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

BLOCK = 1 << 20  # ids per block when the whole vocabulary is walked


def check_ids(ids: Tensor, num_embeddings: int, *, what: str = "ids") -> None:
    """Refuse ids of another type or outside `[0, num_embeddings)`.

    Looking at the values would make a GPU wait, so it is done on the CPU alone. Inside `torch.compile`, `torch.export`
    and `torch.vmap` there are no values to look at.
    """
    check_id_type(ids, num_embeddings)
    if ids.numel() and ids.is_cpu and _readable(ids):
        smallest, largest = (int(bound) for bound in torch.aminmax(ids.reshape(-1)))
        if smallest < 0 or largest >= num_embeddings:
            wrong = smallest if smallest < 0 else largest
            raise IndexError(f"{what} must lie in [0, {num_embeddings}), got {wrong}.")


def check_id_type(ids: Tensor, num_embeddings: int) -> None:
    """Refuse what is no tensor of integers."""
    if not isinstance(ids, Tensor):
        raise TypeError(f"ids must be a Tensor of int32 or int64 in [0, {num_embeddings}), got {type(ids).__name__}.")
    if ids.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"ids must be int32 or int64 in [0, {num_embeddings}), got {ids.dtype}{_example(ids)}.")


def blocks(num_ids: int, size: int = BLOCK) -> Iterator[Tensor]:
    """All ids below `num_ids`, in order, `size` at a time."""
    for start in range(0, num_ids, size):
        yield torch.arange(start, min(start + size, num_ids), device="cpu")


def _readable(ids: Tensor) -> bool:
    return not (torch.compiler.is_compiling() or ids.is_meta or is_functorch_wrapped_tensor(ids))


def _example(ids: Tensor) -> str:
    if not ids.numel() or not _readable(ids):
        return ""
    return f" (the first is {ids.reshape(-1)[0].item()})"
