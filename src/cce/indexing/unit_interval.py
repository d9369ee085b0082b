"""Hashes of ids into [-1, 1]: the dense random H of deep hash embeddings (Kang et al., KDD 2021)."""

from __future__ import annotations

import torch
from torch import Tensor

from cce.checks import check_range
from cce.indexing.multiply_shift import MASK32, MAX_ROWS, draw_seeds, hash32
from cce.indexing.state import IndexModule


class UnitInterval(IndexModule):
    """`num_hashes` independent random functions from ids to [-1, 1], uniform, with mean exactly 0 and variance 1/3."""

    index_state = ("seeds",)
    device_tensors = ("seeds",)

    def __init__(
        self, num_hashes: int, *, generator: torch.Generator | None = None, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        check_range("num_hashes", num_hashes, 1, MAX_ROWS)
        self.num_hashes = num_hashes
        self.seeds = torch.empty(num_hashes, 3, dtype=torch.int64, device=device)
        self.reset_parameters(generator)

    def forward(self, ids: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Numbers `(*s, num_hashes)` for ids `(*s)`."""
        centred = 2 * hash32(ids, self.seeds) - MASK32  # an odd integer in [-MASK32, MASK32]
        return (centred.to(torch.float64) / MASK32).to(dtype)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Become other random functions, in place."""
        if not self.seeds.is_meta:
            self.seeds.copy_(draw_seeds(self.num_hashes, generator))

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"num_hashes={self.num_hashes}"
