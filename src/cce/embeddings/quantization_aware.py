"""Quantisation-aware training: float rows that are rounded as they are looked up, so that they can be codes afterwards.

Jacob et al., "Quantization and training of neural networks for efficient integer-arithmetic-only inference" (CVPR
2018), with the straight-through gradient of Bengio, Léonard and Courville (2013). `H` is the identity. Beside
`quantized`, whose rows are integers in training as well, it holds the full table and its optimizer's state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor

from cce.embeddings.base import check_budget, check_weight
from cce.embeddings.codes import Codes, check_bits
from cce.embeddings.full import FullEmbedding
from cce.embeddings.initialization import StartScale, new_parameter, normal_
from cce.embeddings.linear import RowEmbedding
from cce.embeddings.options import choice, rules
from cce.embeddings.rounding import Rounding
from cce.embeddings.shapes import Shapes
from cce.indexing import IndexModule, OwnRow, blocks
from cce.kernels import Layout, is_eager

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cce.embeddings.training_defaults import TrainingDefaults

FIT_EVERY = 256  # lookups in training; at first after 1, 2, 4, …, as scales change most there
FEW_HEADROOMS = (2.5,)  # of 4 bits, see `Rounding`: rows that train so make up for large values that are cut off
BLOCK = 1 << 16  # rows rounded at a time
SCALE_BYTES, COUNT_BYTES = 4, 8


class QuantizationAwareEmbedding(RowEmbedding):
    """`T[x] = scale · round(M[x] / scale)`: rows of floating point, looked up as the codes that they are to become.

    The gradient goes straight through to `M`, as if nothing were rounded; also to values beyond the largest code, which
    otherwise could not come back. The scale follows the rows: it is fitted to the whole table now and then in training,
    and when the table is switched to evaluation, in which it does not change. A `quantized` table of the same options
    that is fitted to this one is equal to it.

    bits: of the codes: 4, 8 or 16.
    scale_by: one scale for the "table" or for each "column".
    """

    method = "qat"
    option_checks = rules(bits=check_bits, scale_by=choice("table", "column"))

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        bits: int = 8,
        scale_by: Literal["table", "column"] = "column",
        padding_idx: int | None = None,
        sparse: bool = False,
        start_scale: StartScale = "uniform",
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx=padding_idx, sparse=sparse, start_scale=start_scale)
        self.check_options(bits=bits, scale_by=scale_by)
        self.rounding, self.scale_by = Rounding(bits, FEW_HEADROOMS), scale_by
        shape = self.shapes(num_embeddings, embedding_dim, {"scale_by": scale_by}).parameters["codebook"]
        self.codebook = new_parameter(shape, device=device, dtype=dtype)
        self.fitted = FittedScale(embedding_dim if scale_by == "column" else 1)
        self.reset_parameters(generator)

    def init_parameters(self, generator: torch.Generator | None) -> None:
        """Rows as of the full table, and a scale that fits them."""
        normal_(self.codebook, variance=self.start_variance, generator=generator)
        self.fit_scale()

    @property
    def scale(self) -> Tensor:
        """The scales, `(1, embedding_dim)` or `(1, 1)`."""
        return self.fitted.scale

    @property
    def codebook_nbytes(self) -> int:
        """Bytes of the rows and of what says how they are rounded."""
        return super().codebook_nbytes + self.fitted.nbytes

    @property
    def pointer_nbytes(self) -> int:
        """There are no pointers."""
        return super().pointer_nbytes - self.fitted.nbytes

    def layout(self) -> Layout:
        """Each id is its own row."""
        sources = (OwnRow(self.num_embeddings),)
        return Layout(self.num_embeddings, 1, 1, self.embedding_dim, self.num_embeddings, sources, self.padding_idx)

    def embed(self, ids: Tensor) -> Tensor:
        """The rows, rounded."""
        is_fitted = self.training and torch.is_grad_enabled() and is_eager() and not self.codebook.is_meta
        if is_fitted and self.fitted.is_due():
            self.fit_scale()
        rows = self.look_up(ids)
        values = rows.detach()
        rounded = self.rounding.nearest(values, self.scale) * self.scale
        return rounded.to(rows.dtype) + (rows - values)  # the difference is 0, and its gradient is that of the rows

    @torch.no_grad()
    def fit_scale(self) -> None:
        """Fit the scale to the rows as they are."""
        if not self.codebook.is_meta:
            self.scale.copy_(self._fitted_scale())

    @torch.no_grad()
    def to_codes(self) -> tuple[Codes, Tensor]:
        """The codes of all rows and their scale, with which they are the table as it is evaluated."""
        codes = Codes(self.num_embeddings, self.embedding_dim, bits=self.rounding.bits, device="cpu")
        scale = self._fitted_scale() if self.training else self.scale
        for block in blocks(self.num_embeddings, BLOCK):
            rows = self.codebook[int(block[0]) : int(block[-1]) + 1]
            codes.write(int(block[0]), self.rounding.nearest(rows, scale).cpu())
        return codes, scale

    def train(self, mode: bool = True) -> Self:  # noqa: FBT001, FBT002  # torch's
        """Switch to training, or to evaluation with a scale that fits the rows as they are."""
        if self.training and not mode:
            self.fit_scale()
        return super().train(mode)

    @torch.no_grad()
    def fit_to(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """Take over the rows of `weight`, and fit the scale to them."""
        del generator
        check_weight(self, weight)
        self.codebook.copy_(weight)
        self.fit_scale()

    @classmethod
    def training_defaults(cls, preset: str = "tuned") -> TrainingDefaults:
        """Those of the full table."""
        return FullEmbedding.training_defaults(preset)

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Mapping[str, Any]) -> Shapes:
        """A row for each id, the scales and a count of lookups."""
        num_scales = embedding_dim if arguments["scale_by"] == "column" else 1
        rows = {"codebook": (num_embeddings, embedding_dim)}
        return Shapes(rows, scale_nbytes=num_scales * SCALE_BYTES + COUNT_BYTES)

    @classmethod
    def size_for_budget(
        cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """There is nothing to choose: the budget must hold all of it."""
        del options
        check_budget(cls.method, num_params, num_embeddings * embedding_dim)
        return {}

    def _fitted_scale(self) -> Tensor:
        values = self.codebook.float()
        parts = values.T.contiguous().unbind(0) if self.scale_by == "column" else [values]
        return self.rounding.fitted_scales(parts).view(1, -1)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{super().extra_repr()}, bits={self.rounding.bits}, scale_by={self.scale_by!r}"


class FittedScale(IndexModule):
    """Scales in float32, whatever the type of the rows, and for how many lookups they have followed them."""

    index_state = ("scale", "num_lookups")
    device_tensors = ("scale",)

    def __init__(self, num_scales: int) -> None:
        super().__init__()
        self.scale = torch.empty(1, num_scales, dtype=torch.float32, device="meta")
        self.num_lookups = torch.empty(1, dtype=torch.int64, device="meta")

    def is_due(self) -> bool:
        """Count a lookup, and say whether scales are to be fitted before it."""
        before = int(self.num_lookups)
        self.num_lookups += 1
        return before % FIT_EVERY == 0 or (before < FIT_EVERY and before & (before - 1) == 0)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002
        scale = self.scale
        applied = super()._apply(fn, recurse)
        if self.scale.dtype is not torch.float32:
            self.scale = scale.to(self.scale.device)
        return applied
