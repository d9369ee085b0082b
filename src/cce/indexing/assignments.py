"""Learned pointers: for every id and column, the row of the codebook that the id points to.

How they are stored is the business of their `PointerStore`. They stay on the CPU, and `.to()` leaves them there (see
`state` for why they are neither parameters nor buffers).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from cce.checks import check_range
from cce.indexing.ids import blocks
from cce.indexing.multiply_shift import MultiplyShift
from cce.indexing.pointer_store import PointerStore
from cce.indexing.state import IndexModule

HASHED_AT_A_TIME = 1 << 16  # ids: some integers of 8 bytes are held for each of their pointers


class Assignments(IndexModule):
    """Pointers of `num_embeddings` ids in `num_columns` columns into `num_rows` rows each.

    At the start they point where a random hash function says. Only ids below `num_learned` are stored and can be
    learned; with ids numbered by falling frequency these are the frequent ones. The others stay hashed and cost
    nothing.
    `share_memory()`, also of a model around it, shares them between processes. On the meta device nothing is drawn.
    """

    index_state: ClassVar[tuple[str, ...]] = ()  # the pointers save themselves

    def __init__(
        self,
        num_embeddings: int,
        num_columns: int,
        num_rows: int,
        *,
        num_learned: int | None = None,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        num_learned = num_embeddings if num_learned is None else num_learned
        check_range("num_learned", num_learned, 0, num_embeddings + 1)
        self.num_embeddings = num_embeddings
        self.num_learned = num_learned
        self.hash = MultiplyShift(num_columns, num_rows, generator=generator, device=device)
        self.pointers = PointerStore(num_learned, num_columns, num_rows, is_meta=self.hash.seeds.is_meta)
        self._point_to_hashed_rows()
        self._follow_seeds()

    @classmethod
    def of(cls, pointers: PointerStore) -> Assignments:
        """Assignments of all ids that a store has pointers of."""
        sizes = pointers.num_ids, pointers.num_columns, pointers.num_rows
        made = cls(*sizes, num_learned=0, generator=torch.Generator().manual_seed(0))
        made.num_learned, made.pointers = pointers.num_ids, pointers
        return made

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
        """Bytes of the pointers."""
        return self.pointers.nbytes

    def forward(self, ids: Tensor) -> Tensor:
        """Rows `(*s, num_columns)`, int64 and on the device of the ids `(*s)`."""
        if self.num_learned == 0:
            return self.hash(ids)  # type: ignore[no-any-return]
        if self.num_learned == self.num_embeddings:
            return self.pointers.read(ids)
        learned = self.pointers.read(ids.clamp(max=self.num_learned - 1))
        return torch.where((ids < self.num_learned).unsqueeze(-1), learned, self.hash(ids))

    def write(self, ids: Tensor, rows: Tensor) -> None:
        """Point consecutive ids `(n)`, as `blocks` gives them, to `rows` `(n, num_columns)`."""
        self.pointers.write(int(ids[0]), rows)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw another hash function, and point where it says."""
        self.hash.reset_parameters(generator)
        self._point_to_hashed_rows()

    def _point_to_hashed_rows(self) -> None:
        if self.pointers.is_meta:
            return
        for ids in blocks(self.num_learned, HASHED_AT_A_TIME):
            self.write(ids, self.hash(ids.to(self.hash.seeds.device)))

    def replace(self, pointers: PointerStore) -> None:
        """Point all learned ids elsewhere at once, in as many rows as these pointers can name."""
        self.pointers = self.pointers.replace(pointers)
        self.hash.num_rows = pointers.num_rows
        self._follow_seeds()

    def resize(self, num_rows: int) -> None:
        """Have `num_rows` rows to point to, and point all learned ids to the first of them."""
        self.replace(PointerStore(self.num_learned, self.num_columns, num_rows))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002
        applied = super()._apply(fn, recurse)
        self._follow_seeds()
        if self.hash.seeds.is_cpu and self.hash.seeds.is_shared():  # type: ignore[no-untyped-call]
            self.pointers.share_memory_()
        return applied

    def _follow_seeds(self) -> None:
        """Move the pointers to the device of the seeds, unless they stay on the CPU."""
        self.pointers.set_meta(self.hash.seeds.is_meta)
        if not (self.stays_on_cpu or self.pointers.is_meta):
            self.pointers.words = self.pointers.words.to(self.hash.seeds.device)

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
        """What `print` shows."""
        return f"num_learned={self.num_learned}, num_columns={self.num_columns}, bits={self.pointers.bits}"
