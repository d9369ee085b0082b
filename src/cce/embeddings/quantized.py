"""Rounded rows: a trained table as 8-bit (or 4- or 16-bit) integers times a scale.

Post-training quantisation, the baseline that any other method has to beat in bytes. `H` is the identity. The integers
stay as they are; rows that train as int8 are method `cce`.
"""

from __future__ import annotations

from typing import Literal, Unpack

import torch
from torch import Tensor, nn

from cce.embeddings.base import Embedding, check_weight
from cce.embeddings.codes import Codes, check_bits, row_nbytes
from cce.embeddings.initialization import output_variance
from cce.embeddings.options import CommonOptions, Options, choice, rules
from cce.embeddings.sizing import Shapes
from cce.indexing import blocks

BLOCK = 1 << 16  # rows at a time


class QuantizedEmbedding(Embedding):
    """`T[x] = scale · codes[x]`: one row of integers for each id, rounded from a trained table by `fit_to`.

    Codes count as parameters; scales do not.

    bits: of a code: 8, 4 (two codes in a byte) or 16.
    scale_by: one scale for the "table" or for each "column".
    """

    method = "quantized"
    sized_by = None
    scale: nn.Parameter
    option_checks = rules(bits=check_bits, scale_by=choice("table", "column"))

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        bits: int = 8,
        scale_by: Literal["table", "column"] = "table",
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, **common)
        if self.sparse:
            raise ValueError("sparse must be False for method 'quantized': its rows have no gradient tensor.")
        options = self.check_options(bits=bits, scale_by=scale_by)
        self.codes = Codes(num_embeddings, embedding_dim, bits=bits, device="meta")
        self.make_parameters(options, common)

    @torch.no_grad()
    def init_parameters(self, generator: torch.Generator | None) -> None:
        """Codes of independent normal values; a table of zeros has the scale of the uniform start."""
        deviation = self.start_variance**0.5
        size = deviation or output_variance(self.embedding_dim) ** 0.5
        self.scale.fill_(self.codes.rounding.headroom * size / self.codes.largest)
        for block in blocks(self.num_embeddings, BLOCK):
            drawn = torch.randn(len(block), self.embedding_dim, generator=generator, device="cpu")
            self._round(int(block[0]), drawn.mul_(deviation))

    @property
    def num_params(self) -> int:
        """The codes."""
        return self.codes.numel

    @property
    def codebook_nbytes(self) -> int:
        """Bytes of codes and scales."""
        return super().codebook_nbytes + self.codes.nbytes

    @property
    def pointer_nbytes(self) -> int:
        """There are no pointers."""
        return super().pointer_nbytes - self.codes.nbytes

    def embed(self, ids: Tensor) -> Tensor:
        """The codes of the rows, times their scale."""
        return self.codes.read(ids).to(self.scale.dtype) * self.scale

    @torch.no_grad()
    def fit_to(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """Fit the scale to `weight`, and round it to the nearest codes."""
        check_weight(self, weight)
        parts = weight.float().unbind(1) if self.scale.numel() > 1 else [weight.float()]
        self.scale.copy_(self.codes.rounding.fitted_scales(parts).view(self.scale.shape))
        for block in blocks(self.num_embeddings, BLOCK):
            self._round(int(block[0]), weight[block.to(weight.device)].float())

    def _round(self, first: int, values: Tensor) -> None:
        """Set the codes of the rows from `first` on to the nearest ones."""
        nearest = self.codes.rounding.nearest(values.to(self.scale.device), self.scale.float())
        self.codes.write(first, nearest)

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Options) -> Shapes:
        """The scales, and the codes of every row."""
        num_scales = embedding_dim if arguments["scale_by"] == "column" else 1
        return Shapes(
            {"scale": (1, num_scales)},
            codes=(num_embeddings, embedding_dim),
            code_row_nbytes=row_nbytes(embedding_dim, arguments["bits"]),
        )

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{super().extra_repr()}, bits={self.codes.bits}"
