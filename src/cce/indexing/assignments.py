"""Learned pointers: for every id and column, the row of the codebook that the id points to.

They live on the CPU in the smallest unsigned type, so that a vocabulary costs a GPU nothing, and `.to()` leaves them
there (see `state` for why they are neither parameters nor buffers).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cce.checks import check_range
from cce.indexing.ids import blocks
from cce.indexing.multiply_shift import MultiplyShift
from cce.indexing.state import IndexModule


def smallest_unsigned(num_rows: int) -> torch.dtype:
    """The narrowest type that can name every one of `num_rows` rows."""
    if num_rows <= 2**8:
        return torch.uint8
    return torch.uint16 if num_rows <= 2**16 else torch.int32


def pointer_nbytes(num_ids: int, num_columns: int, num_rows: int) -> int:
    """Bytes of the pointers of so many ids, each into `num_rows` rows of every column."""
    return num_ids * num_columns * smallest_unsigned(num_rows).itemsize


class Assignments(IndexModule):
    """Pointers of `num_embeddings` ids in `num_columns` columns into `num_rows` rows each.

    At the start they point where a random hash function says. Only ids below `num_learned` are stored and can be
    learned; with ids numbered by falling frequency these are the frequent ones. The others stay hashed and cost
    nothing. With `path` the pointers are mapped from that file instead of held in memory: from what an existing file
    holds, or from a new one.
    """

    index_state = ("pointers",)

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
        self.path = None if path is None else Path(path)
        kept = self.path is not None and self.path.exists()
        self.pointers = _allocate(num_learned, num_columns, smallest_unsigned(num_rows), self.path)
        if kept and not _name_rows(self.pointers, num_rows):
            raise ValueError(f"path must hold pointers in [0, {num_rows}), got others: {path}.")
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

    def stage(self, pointers: Tensor) -> Tensor:
        """Prepare `replace`: where pointers are mapped from a file, write the new ones to a file beside it."""
        if self.path is None or not len(pointers):
            return pointers
        aside = _aside(self.path)
        aside.unlink(missing_ok=True)
        staged = _map_file(aside, len(pointers), pointers.shape[1], pointers.dtype)
        return staged.copy_(pointers)

    def replace(self, staged: Tensor, num_rows: int) -> None:
        """Point all learned ids elsewhere at once, to what was staged `(num_learned, num_columns)`, in `num_rows` rows.

        A mapped file is renamed into place: an interruption or a kill leaves the old pointers or the new ones.
        """
        if self.path is not None and len(staged):
            _aside(self.path).replace(self.path)
        self.pointers = staged
        self.hash.num_rows = num_rows

    def _read(self, ids: Tensor) -> Tensor:
        stored = self.pointers
        if stored.dtype is torch.uint16:  # torch cannot gather from uint16: read it as int16 and mend the sign
            stored = stored.view(torch.int16)
        rows = stored.index_select(0, ids.reshape(-1).cpu()).long()
        if stored.dtype is torch.int16:
            rows = rows & 0xFFFF
        return rows.view(*ids.shape, self.num_columns).to(ids.device)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Pointers beyond the rows would make a lookup read, and its gradient write, beyond the codebook."""
        found = state_dict.get(prefix + "pointers")
        if found is not None and not _name_rows(found, self.num_rows):
            args[-1].append(f"pointers mismatch for {prefix}pointers: they must lie in [0, {self.num_rows}).")
            state_dict[prefix + "pointers"] = self.pointers
        super()._load_from_state_dict(state_dict, prefix, *args)

    def __getstate__(self) -> dict[str, Any]:
        """A copy does not share the file of the first: what lies in a file travels by value."""
        state = super().__getstate__()
        if self.path is None:
            return state
        mapped, dtype = state["pointers"]
        return state | {"path": None, "pointers": (mapped.numpy().copy(), dtype)}

    def extra_repr(self) -> str:
        """What `print` shows."""
        dtype = str(self.pointers.dtype).removeprefix("torch.")
        return f"num_learned={self.num_learned}, num_columns={self.num_columns}, dtype={dtype}"


def _name_rows(pointers: Tensor, num_rows: int) -> bool:
    """Whether all of them lie in `[0, num_rows)`."""
    numbers = pointers.cpu().numpy()  # torch has no bounds of uint16
    return not numbers.size or bool(numbers.min() >= 0 and numbers.max() < num_rows)


def _aside(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _map_file(path: Path, num_ids: int, num_columns: int, dtype: torch.dtype) -> Tensor:
    return torch.from_file(str(path), shared=True, size=num_ids * num_columns, dtype=dtype).view(num_ids, num_columns)


def _allocate(num_ids: int, num_columns: int, dtype: torch.dtype, path: Path | None) -> Tensor:
    if path is None or num_ids == 0:
        return torch.empty(num_ids, num_columns, dtype=dtype, device="cpu")
    expected = num_ids * num_columns * dtype.itemsize
    found = path.stat().st_size if path.exists() else expected
    if found != expected:
        raise ValueError(
            f"path must hold {expected} bytes for ({num_ids}, {num_columns}) of {dtype}, got {found}: {path}."
        )
    return _map_file(path, num_ids, num_columns, dtype)
