"""Tables for inference that multiply matrices: tensor trains, and networks of hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cce.indexing import hash32, mixed_radix_digits
from cce.serving.frozen_tables import FrozenTable, stored_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cce.serving.stored_rows import StoredRows

MASK32 = 0xFFFF_FFFF


class FrozenTensorTrain(FrozenTable):
    """A product of small matrices, one for each digit of the id."""

    kind = "tensor-train"

    def __init__(
        self,
        size: tuple[int, int, int | None],
        cores: Sequence[StoredRows],
        factors: Sequence[int],
        ranks: Sequence[int],
    ) -> None:
        super().__init__(*size)
        self.cores = nn.ModuleList(cores)
        self.factors, self.ranks = tuple(factors), tuple(ranks)

    def embed(self, ids: Tensor) -> Tensor:
        """The product of one slice of each core."""
        cores = stored_rows(self.cores)
        digits = torch.split(mixed_radix_digits(ids, [len(core.values) for core in cores]), 1, dim=-1)
        slices: list[Tensor] = [core(digit).squeeze(1) for core, digit in zip(cores, digits, strict=True)]
        first, middle, last = slices
        (d1, d2, d3), (r1, r2) = self.factors, self.ranks
        left = first.view(-1, d1, r1) @ middle.view(-1, r1, d2 * r2)  # (n, d1, d2·r2)
        return (left.view(-1, d1 * d2, r2) @ last.view(-1, r2, d3)).flatten(1)

    def spec(self) -> dict[str, Any]:
        """With the factors of the dimension and the ranks."""
        return super().spec() | {"factors": list(self.factors), "ranks": list(self.ranks)}


class FrozenNetwork(FrozenTable):
    """Hashes of the id in [−1, 1], sent through a network with Mish between its layers.

    segment: if not 0, the first layer is a table in segments of so many rows, and an id adds up one row of each.
    """

    kind = "network"
    seeds: Tensor

    def __init__(
        self, size: tuple[int, int, int | None], seeds: Tensor, layers: Sequence[StoredRows], *, segment: int = 0
    ) -> None:
        super().__init__(*size)
        self.segment = segment
        self.register_buffer("seeds", seeds.detach().cpu().clone())
        self.layers = nn.ModuleList(layers)

    def embed(self, ids: Tensor) -> Tensor:
        """The hashes, layer after layer."""
        first, *hidden, last = stored_rows(self.layers)
        activations = functional.mish(self._sketch(hash32(ids, self.seeds), first))
        for layer in hidden:
            activations = functional.mish(functional.linear(activations, layer.dense()))
        return functional.linear(activations, last.dense())

    def _sketch(self, hashes: Tensor, first: StoredRows) -> Tensor:
        """The output of the first layer."""
        if self.segment:
            starts = torch.arange(len(self.seeds), device=hashes.device) * self.segment
            return first(((hashes * self.segment) >> 32) + starts).sum(1)  # type: ignore[no-any-return]
        centred = 2 * hashes - MASK32
        return functional.linear((centred.to(torch.float64) / MASK32).to(torch.float32), first.dense())

    def spec(self) -> dict[str, Any]:
        """With the rows of a segment."""
        return super().spec() | {"segment": self.segment}
