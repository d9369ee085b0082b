"""Learned pointers: for every id and column, the row of the codebook that the id points to.

How they are stored is the business of their `PointerStore`. See `state` for why they are neither parameters nor
buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from cce.indexing.ids import blocks
from cce.indexing.multiply_shift import MultiplyShift
from cce.indexing.pointer_store import PointerStore
from cce.indexing.state import IndexModule

HASHED_AT_A_TIME = 1 << 16  # ids: some integers of 8 bytes are held for each of their pointers


class Assignments(IndexModule):
    """Pointers of `num_embeddings` ids in `num_columns` columns into `num_rows` rows each.

    At the start they point where a random hash function says. `share_memory()`, also of a model around it, shares them
    between processes. On the meta device nothing is drawn.
    """

    index_state: ClassVar[tuple[str, ...]] = ()  # the pointers save themselves
    device_tensors = ("words",)

    def __init__(
        self,
        num_embeddings: int,
        num_columns: int,
        num_rows: int,
        *,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        place = torch.empty(0, device=device).device
        self.pointers = PointerStore(num_embeddings, num_columns, num_rows, is_meta=place.type == "meta")
        self.words = self.words.to(place)
        self.reset_parameters(generator)

    @classmethod
    def of(cls, pointers: PointerStore) -> Assignments:
        """Assignments of all ids that a store has pointers of."""
        made = cls(0, pointers.num_columns, pointers.num_rows, generator=torch.Generator())
        made.pointers = pointers
        return made

    @property
    def words(self) -> Tensor:
        return self.pointers.words

    @words.setter
    def words(self, words: Tensor) -> None:
        self.pointers.words = words

    @property
    def num_rows(self) -> int:
        return self.pointers.num_rows

    @property
    def num_columns(self) -> int:
        return self.pointers.num_columns

    @property
    def nbytes(self) -> int:
        return self.pointers.nbytes

    def forward(self, ids: Tensor) -> Tensor:
        """Rows `(*s, num_columns)`, int64 and on the device of the ids `(*s)`."""
        return self.pointers.read(ids)

    def write(self, ids: Tensor, rows: Tensor) -> None:
        """Point consecutive ids `(n)`, as `blocks` gives them, to `rows` `(n, num_columns)`."""
        self.pointers.write(int(ids[0]), rows)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Point where another hash function says."""
        if self.pointers.is_meta:
            return
        hashes = MultiplyShift(self.num_columns, self.num_rows, generator=generator, device=self.words.device)
        for ids in blocks(self.pointers.num_ids, HASHED_AT_A_TIME):
            self.write(ids, hashes(ids.to(self.words.device)))

    def replace(self, pointers: PointerStore) -> None:
        """Point all ids elsewhere at once, in as many rows as these pointers can name."""
        pointers.words = pointers.words.to(self.words.device)
        self.pointers = self.pointers.replace(pointers)

    def resize(self, num_rows: int) -> None:
        """Have `num_rows` rows to point to, and point all ids to the first of them."""
        self.replace(PointerStore(self.pointers.num_ids, self.num_columns, num_rows))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002
        was_meta = self.pointers.is_meta
        applied = super()._apply(fn, recurse)
        if was_meta:  # what new memory holds would name rows that are not there
            self.words.zero_()
        return applied

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:  # noqa: FBT001
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination |= {prefix + name: tensor for name, tensor in self.pointers.state().items()}

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        found, shape = (state_dict.pop(prefix + name, None) for name in ("pointers", "pointer_shape"))
        super()._load_from_state_dict(state_dict, prefix, *args)
        local_metadata, _, missing_keys, _, error_msgs = args
        if found is None:
            missing_keys.append(prefix + "pointers")
            return
        try:
            if local_metadata.get("assign_to_params_buffers", False):
                self.pointers.set_meta(False)
            self.pointers.load(found, shape)
        except ValueError as error:
            error_msgs.append(f"pointers mismatch for {prefix}pointers: {error}")

    def extra_repr(self) -> str:
        return f"num_embeddings={self.pointers.num_ids}, num_columns={self.num_columns}, bits={self.pointers.bits}"
