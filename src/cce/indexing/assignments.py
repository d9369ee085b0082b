"""Learned pointers: for every id and column, the row of the codebook that the id points to.

Pointers are facts, not weights. They live on the CPU in the smallest unsigned type, so a vocabulary on a GPU costs the
GPU nothing, and outside of both parameters and buffers: no optimizer sees them, `.to()` leaves them where they are, and
data-parallel training does not send them again at every step. `state_dict` holds them all the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from cce.checks import check_range
from cce.indexing.multiply_shift import MultiplyShift

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK = 1 << 20  # ids per block when the whole vocabulary is walked


def smallest_unsigned(num_rows: int) -> torch.dtype:
    """The narrowest type that can name every one of `num_rows` rows."""
    if num_rows <= 2**8:
        return torch.uint8
    return torch.uint16 if num_rows <= 2**16 else torch.int32


def blocks(num_ids: int, size: int = BLOCK) -> Iterator[Tensor]:
    """All ids below `num_ids`, in order, `size` at a time."""
    for start in range(0, num_ids, size):
        yield torch.arange(start, min(start + size, num_ids), device="cpu")


class Assignments(nn.Module):
    """Pointers of `num_embeddings` ids in `num_columns` columns into `num_rows` rows each.

    At the start they point where a random hash function says. Only ids below `num_learned` are stored and can be
    learned; with ids numbered by falling frequency these are the frequent ones. The others stay hashed and cost
    nothing. With `path` the pointers are mapped from that file instead of held in memory: from what an existing file
    holds, or from a new one.
    """

    def __init__(
        self,
        num_embeddings: int,
        num_columns: int,
        num_rows: int,
        *,
        num_learned: int | None = None,
        path: Path | str | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        num_learned = num_embeddings if num_learned is None else num_learned
        check_range("num_learned", num_learned, 0, num_embeddings + 1)
        self.num_embeddings = num_embeddings
        self.num_learned = num_learned
        self.hash = MultiplyShift(num_columns, num_rows, generator=generator)
        kept = path is not None and Path(path).exists()
        self.pointers = _allocate(num_learned, num_columns, smallest_unsigned(num_rows), path)
        if not kept:
            for ids in blocks(num_learned):
                self.write(ids, self.hash(ids))

    @property
    def num_rows(self) -> int:
        """How many rows a pointer can name."""
        return self.hash.num_rows

    @property
    def num_columns(self) -> int:
        """How many pointers an id has."""
        return self.hash.num_hashes

    @property
    def nbytes(self) -> int:
        """Bytes of the stored pointers."""
        return self.pointers.numel() * self.pointers.element_size()

    def forward(self, ids: Tensor) -> Tensor:
        """Rows `(*s, num_columns)`, int64 and on the device of the ids `(*s)`."""
        if self.num_learned == 0:
            return self.hash(ids)  # type: ignore[no-any-return]
        if self.num_learned == self.num_embeddings:
            return self._read(ids)
        learned = self._read(ids.clamp(max=self.num_learned - 1))
        return torch.where((ids < self.num_learned).unsqueeze(-1), learned, self.hash(ids))

    def write(self, ids: Tensor, rows: Tensor) -> None:
        """Point consecutive ids `(n)`, as `blocks` gives them, to `rows` `(n, num_columns)`."""
        start = int(ids[0])
        self.pointers[start : start + len(ids)] = rows.to(self.pointers.dtype)

    def _read(self, ids: Tensor) -> Tensor:
        stored = self.pointers
        if stored.dtype is torch.uint16:  # torch cannot gather from uint16: read it as int16 and mend the sign
            stored = stored.view(torch.int16)
        rows = stored.index_select(0, ids.reshape(-1).cpu()).long()
        if stored.dtype is torch.int16:
            rows = rows & 0xFFFF
        return rows.view(*ids.shape, self.num_columns).to(ids.device)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:  # noqa: FBT001
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "pointers"] = self.pointers

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,  # noqa: FBT001
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        key = prefix + "pointers"
        loaded = state_dict.pop(key, None)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if loaded is None:
            missing_keys.append(key)
        elif (loaded.shape, loaded.dtype) != (self.pointers.shape, self.pointers.dtype):
            ours, theirs = (f"{tuple(p.shape)} of {p.dtype}" for p in (self.pointers, loaded))
            error_msgs.append(f"pointers mismatch for {key}: the checkpoint has {theirs}, the module {ours}.")
        else:
            self.pointers.copy_(loaded)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and deepcopy, which cannot rebuild a tensor of uint16: its bytes travel instead."""
        state = self.__dict__.copy()
        state["pointers"] = (self.pointers.contiguous().view(torch.uint8).clone(), self.pointers.dtype)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        stored, dtype = state["pointers"]
        super().__setstate__(state | {"pointers": stored.view(dtype)})  # type: ignore[no-untyped-call]

    def extra_repr(self) -> str:
        """What `print` shows."""
        dtype = str(self.pointers.dtype).removeprefix("torch.")
        return f"num_learned={self.num_learned}, num_columns={self.num_columns}, dtype={dtype}"


def _allocate(num_ids: int, num_columns: int, dtype: torch.dtype, path: Path | str | None) -> Tensor:
    if path is None or num_ids == 0:
        return torch.empty(num_ids, num_columns, dtype=dtype, device="cpu")
    expected = num_ids * num_columns * dtype.itemsize
    if Path(path).exists() and Path(path).stat().st_size != expected:
        found = Path(path).stat().st_size
        raise ValueError(
            f"path must hold {expected} bytes for ({num_ids}, {num_columns}) of {dtype}, got {found}: {path}."
        )
    flat = torch.from_file(str(path), shared=True, size=num_ids * num_columns, dtype=dtype)
    return flat.view(num_ids, num_columns)
