"""Quantised rows: 8- or 16-bit integers times a scale, trained as integers, or 4-bit ones after training.

Low-precision training of embedding tables: Zhang et al., "Training with low-precision embedding tables" (2018); Li et
al., "Adaptive low-precision training for embeddings in click-through rate prediction" (AAAI 2023). No row exists in
floating point. They are rounded from a trained table, and stay as they are: what trains as int8 rows is `cce`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from cce import compiled
from cce.checks import check_range
from cce.embeddings.base import MAX_IDS, Embedding, check_weight
from cce.embeddings.codes import Codes, check_bits, row_nbytes
from cce.embeddings.initialization import StartScale, new_parameter, output_variance
from cce.embeddings.options import choice, optional, rules, whole
from cce.embeddings.rounding import FOUR
from cce.embeddings.shapes import Shapes
from cce.indexing import (
    MultiplyShift,
    blocks,
    group_of,
    group_starts,
)
from cce.kernels import CodeRows, is_eager, look_up_codes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ScaleBy = Literal["table", "column", "group"]

BLOCK = 1 << 16  # rows at a time
NUM_SHARED = 256  # rows of ids that have none of their own


class QuantizedEmbedding(Embedding):
    """`T[x] = scale · codes[x]` for ids below `num_learned`; the others, which are rare, share rows by hash.

    Ids are to be numbered by falling count, as `cce prepare` does. Codes count as parameters.

    num_learned: ids with a row of their own; by default all.
    num_shared: rows that the other ids share.
    bits: 8 or 16; or 4, which are rounded from a trained table (`fit_to`) and not trained.
    scale_by: one scale for the "table", for each "column" or for each frequency "group".
    """

    method = "quantized"
    option_checks = rules(
        num_learned=optional(whole(0, MAX_IDS)),
        num_shared=whole(1),
        bits=check_bits,
        scale_by=choice("table", "column", "group"),
    )

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        num_learned: int | None = None,
        num_shared: int = NUM_SHARED,
        bits: int = 8,
        scale_by: ScaleBy = "table",
        padding_idx: int | None = None,
        sparse: bool = False,
        start_scale: StartScale = "uniform",
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx=padding_idx, sparse=sparse, start_scale=start_scale)
        if sparse:
            raise ValueError("sparse must be False for method 'quantized': its rows have no gradient tensor.")
        self.check_options(num_learned=num_learned, num_shared=num_shared, bits=bits, scale_by=scale_by)
        if num_learned is not None:
            check_range("num_learned", num_learned, 0, num_embeddings + 1)
        self.num_learned, self.num_shared = _rows(num_embeddings, num_learned, num_shared)
        self.group_starts = group_starts(self.num_learned, self.num_shared)  # the first row of each frequency group
        self.scale_by = scale_by
        sizes = {"num_learned": num_learned, "num_shared": num_shared, "bits": bits, "scale_by": scale_by}
        shapes = self.shapes(num_embeddings, embedding_dim, sizes)
        self.hash = MultiplyShift(1, self.num_shared, device="meta") if self.num_shared else None
        self.codes = Codes(*shapes.codes, bits=bits, device="meta")
        self.scale = new_parameter(shapes.parameters["scale"], device=device, dtype=dtype)
        self.reset_parameters(generator)

    @property
    def num_params(self) -> int:
        """Codes and scales."""
        return super().num_params + self.codes.numel

    @property
    def codebook_nbytes(self) -> int:
        """Bytes of codes and scales."""
        return super().codebook_nbytes + self.codes.nbytes

    @property
    def pointer_nbytes(self) -> int:
        """Bytes of the hash function."""
        return super().pointer_nbytes - self.codes.nbytes

    def rows(self, ids: Tensor) -> Tensor:
        """The row of each id: its own, or a shared one."""
        if self.hash is None:
            return ids
        shared = self.hash(ids).squeeze(-1) + self.num_learned
        return torch.where(ids < self.num_learned, ids, shared)

    def embed(self, ids: Tensor) -> Tensor:
        """The codes of the rows, times their scale."""
        if self._suits_loops(ids):
            rows, vectors = look_up_codes(ids.contiguous(), self.code_rows())
        else:
            rows = self.rows(ids)
            vectors = self.codes.read(rows).to(self.scale.dtype) * self.scale_of(rows)
        return vectors

    def code_rows(self) -> CodeRows:
        """What a compiled lookup must know."""
        seeds = None if self.hash is None else self.hash.seeds
        return CodeRows(self.codes.values, self.scale, self.group_starts, self.num_learned, seeds)

    def scale_of(self, rows: Tensor) -> Tensor:
        """The scale of each row, in a shape that goes with its codes."""
        if self.scale_by != "group":
            return self.scale
        return self.scale.index_select(0, group_of(rows, self.group_starts))

    @torch.no_grad()
    def fit_to(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """Round `weight` to the nearest codes. A shared row becomes the mean of its ids."""
        del generator  # the hash function is drawn already
        check_weight(self, weight)
        values = weight[: self.num_learned].to(self.scale.device, torch.float32)
        if self.hash is not None:
            values = torch.cat([values, self._shared_means(weight)])
        self.scale.copy_(self._fitted_scales(values))
        self._round(0, values)

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Mapping[str, Any]) -> Shapes:
        """The scales; codes of every row, and the hash function of shared ones."""
        num_learned, num_shared = _rows(num_embeddings, arguments["num_learned"], arguments["num_shared"])
        num_groups = len(group_starts(num_learned, num_shared))
        scale = {"table": (1, 1), "column": (1, embedding_dim), "group": (num_groups, 1)}[arguments["scale_by"]]
        return Shapes(
            {"scale": scale},
            num_hashes=int(num_shared > 0),
            codes=(num_learned + num_shared, embedding_dim),
            code_row_nbytes=row_nbytes(embedding_dim, arguments["bits"]),
        )

    @classmethod
    def size_for_budget(
        cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Give codes of their own to as many ids as the budget holds beside the shared rows."""
        return cls._largest("num_params", num_params, (num_embeddings, embedding_dim), options, lambda s: s.num_params)

    @classmethod
    def size_for_bytes(
        cls, num_embeddings: int, embedding_dim: int, nbytes: int, options: Mapping[str, Any], *, itemsize: int = 4
    ) -> dict[str, Any]:
        """The same with bytes, of which a code has one or two."""

        def weigh(shapes: Shapes) -> int:
            return shapes.codebook_nbytes(itemsize) + shapes.pointer_nbytes

        return cls._largest("nbytes", nbytes, (num_embeddings, embedding_dim), options, weigh)

    def extra_repr(self) -> str:
        """What `print` shows."""
        rows = f"num_learned={self.num_learned}, num_shared={self.num_shared}"
        return f"{super().extra_repr()}, {rows}, bits={self.codes.bits}"

    @classmethod
    def _largest(
        cls,
        measure: str,
        limit: int,
        size: tuple[int, int],
        options: Mapping[str, Any],
        weigh: Callable[[Shapes], int],
    ) -> dict[str, Any]:
        """The most rows within a limit, shared out."""

        def weight(sizes: Mapping[str, Any]) -> int:
            return weigh(cls.shapes(*size, dict(options) | dict(sizes)))

        one, two = ({"num_learned": 0, "num_shared": rows} for rows in (1, 2))
        row = weight(two) - weight(one) if size[0] > 1 else size[1]
        num_rows = limit // row
        while num_rows > 0:
            sizes = _split(size[0], num_rows, options)
            excess = weight(sizes) - limit
            if excess <= 0:
                return sizes
            num_rows -= -(-excess // row)
        raise ValueError(
            f"{measure} must be at least {weight(one)} for method {cls.method!r} of these sizes, got {limit}."
        )

    def _suits_loops(self, ids: Tensor) -> bool:
        """Whether compiled loops can serve: checked ids on the CPU, float32, and no gradient of the scales."""
        if not is_eager() or (self.scale.requires_grad and torch.is_grad_enabled()):
            return False
        if not compiled.available:
            compiled.warn_plain()
            return False
        if self.check_ids is False or self.scale.dtype is not torch.float32 or self.codes.bits == FOUR:
            return False
        tensors = [ids, self.scale, self.codes.values, *([] if self.hash is None else [self.hash.seeds])]
        return all(tensor.is_cpu for tensor in tensors)

    def init_parameters(self, generator: torch.Generator | None) -> None:
        """Codes of independent normal values; a table of zeros has the scale of the uniform start."""
        deviation = self.start_variance**0.5
        with torch.no_grad():
            size = deviation or output_variance(self.embedding_dim) ** 0.5
            self.scale.fill_(self.codes.rounding.headroom * size / self.codes.largest)
            for block in blocks(len(self.codes.values), BLOCK):
                drawn = torch.randn(len(block), self.embedding_dim, generator=generator, device="cpu")
                self._round(int(block[0]), drawn.mul_(deviation).to(self.scale.device))

    def _round(self, first: int, values: Tensor) -> None:
        """Set the codes of the rows from `first` on to the nearest ones."""
        rows = torch.arange(first, first + len(values), device=values.device)
        self.codes.write(first, self.codes.rounding.nearest(values, self.scale_of(rows).float()))

    def _fitted_scales(self, values: Tensor) -> Tensor:
        """Scales that fit the values of their parts of the table."""
        parts = [values]
        if self.scale_by == "column":
            parts = list(values.unbind(1))
        elif self.scale_by == "group":
            parts = [values[first:last] for first, last in pairwise([*self.group_starts, len(values)])]
        return self.codes.rounding.fitted_scales(parts).view(self.scale.shape)

    def _shared_means(self, weight: Tensor) -> Tensor:
        sums = torch.zeros(self.num_shared, self.embedding_dim, dtype=torch.float64, device=weight.device)
        counts = torch.zeros(self.num_shared, 1, dtype=torch.float64, device=weight.device)
        for block in blocks(self.num_embeddings, BLOCK):
            ids = block[block >= self.num_learned].to(weight.device)
            rows = self.rows(ids) - self.num_learned
            sums.index_add_(0, rows, weight[ids].double())
            counts.index_add_(0, rows, torch.ones_like(rows, dtype=torch.float64).unsqueeze(1))
        return (sums / counts.clamp(min=1)).to(self.scale.device, torch.float32)


def _rows(num_embeddings: int, num_learned: int | None, num_shared: int) -> tuple[int, int]:
    """How many rows of their own ids have, and how many rows the others share."""
    num_learned = num_embeddings if num_learned is None else min(num_learned, num_embeddings)
    return num_learned, min(num_shared, num_embeddings - num_learned)


def _split(num_embeddings: int, num_rows: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """So many rows, shared out: at most half of them to ids that share."""
    wanted = num_embeddings if options["num_learned"] is None else min(options["num_learned"], num_embeddings)
    if num_rows >= num_embeddings == wanted:
        return {"num_learned": num_embeddings, "num_shared": options["num_shared"]}
    num_shared = min(options["num_shared"], max(1, num_rows // 2))
    return {"num_learned": min(num_rows - num_shared, wanted), "num_shared": num_shared}
