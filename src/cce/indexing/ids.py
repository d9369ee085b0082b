"""The rule for ids: int32 or int64, from 0 up to the size of the vocabulary; any of them where no vocabulary is known.

Hashing would swallow any number, and a negative one would wrap to the last row, so the rule is checked at the door.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

NO_ID = -(2**63)  # no padding; of an open table, an id that never gets a row: what a missing number is cast to
BLOCK = 1 << 20  # ids per block when the whole vocabulary is walked


def check_ids(ids: Tensor, num_embeddings: int | None, *, what: str = "ids") -> None:
    """Refuse ids of another type or outside `[0, num_embeddings)`; None: any ids will do.

    Looking at the values would make a GPU wait, so it is done on the CPU alone. Inside `torch.compile`, `torch.export`
    and `torch.vmap` there are no values to look at.
    """
    check_id_type(ids, num_embeddings)
    if num_embeddings is not None and ids.numel() and ids.is_cpu and _readable(ids):
        smallest, largest = (int(bound) for bound in torch.aminmax(ids.reshape(-1)))
        if smallest < 0 or largest >= num_embeddings:
            wrong = smallest if smallest < 0 else largest
            raise IndexError(f"{what} must lie in [0, {num_embeddings}), got {wrong}.")


def check_id_type(ids: Tensor, num_embeddings: int | None) -> None:
    """Refuse what is no tensor of integers."""
    within = "" if num_embeddings is None else f" in [0, {num_embeddings})"
    if not isinstance(ids, Tensor):
        raise TypeError(f"ids must be a Tensor of int32 or int64{within}, got {type(ids).__name__}.")
    if ids.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"ids must be int32 or int64{within}, got {ids.dtype}{_example(ids)}.")


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
