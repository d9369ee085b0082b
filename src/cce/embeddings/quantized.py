"""Rounded rows: a trained table as 8-bit (or 4-bit) integers times a scale.

Post-training quantisation, the baseline that any other method has to beat in bytes. `H` is the identity. The integers
stay as they are; rows that train as int8 are method `cce`.
"""

import math
from collections.abc import Iterable
from typing import Any, Literal, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from cce.embeddings.base import Embedding, check_weight
from cce.embeddings.initialization import output_variance
from cce.embeddings.options import CommonOptions, Options, choice, rules
from cce.embeddings.sizing import Shapes
from cce.indexing import IndexModule, blocks

BLOCK = 1 << 16  # rows at a time
CODES = {4: torch.uint8, 8: torch.int8}
OFFSET = 8  # of 4-bit codes, which are stored as 0 to 15, two in a byte
HEADROOMS = {  # how many times the root mean square of the values the largest code stands for: the one with least error
    4: (2.0, 2.5, 3.0, 3.5, 4.0, 5.0),
    8: (8.0,),
}
START_HEADROOM = {4: 3.0, 8: 8.0}
SERIAL = 1 << 14  # values that torch adds up in one thread, so that sums have the same bits with any number of them


class Codes(IndexModule):
    """Integers `(num_rows, width)` in `[-largest, largest]`; of 4 bits, two share a byte of `values`."""

    index_state = ("values",)
    device_tensors = ("values",)

    def __init__(self, num_rows: int, width: int, *, bits: int, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.bits, self.width, self.largest = bits, width, (1 << bits - 1) - 1
        self.values = torch.zeros(num_rows, _row_nbytes(width, bits), dtype=CODES[bits], device=device)

    def read(self, rows: Tensor) -> Tensor:
        """The codes `(n, width)` of rows `(n)`."""
        found = self.values.index_select(0, rows)
        if self.bits == 8:
            return found
        pairs = torch.stack([found & 15, found >> 4], dim=-1).flatten(1)
        return pairs[:, : self.width].to(torch.int8) - OFFSET

    def write(self, first: int, values: Tensor, scale: Tensor) -> None:
        """Round values `(n, width)` to the nearest codes of the rows from `first` on."""
        codes = self.nearest(values, scale)
        if self.bits == 4:
            even = functional.pad((codes + OFFSET).to(torch.uint8), (0, self.width % 2))
            codes = even[:, ::2] | (even[:, 1::2] << 4)
        self.values[first : first + len(codes)] = codes.to(self.values.dtype)

    def nearest(self, values: Tensor, scale: Tensor | float) -> Tensor:
        """The nearest codes, as floating-point numbers."""
        return (values / scale).round_().clamp(-self.largest, self.largest)

    def fitted_scale(self, values: Tensor) -> float:
        """The scale with which the largest of the values is the largest code, unless it lies far out."""
        pieces = torch.split(values.flatten(), SERIAL)
        largest, root = float(values.abs().max()), math.sqrt(_sum_of_squares(pieces) / values.numel())

        def error(scale: float) -> float:
            return _sum_of_squares(self.nearest(piece, scale).mul_(scale).sub_(piece) for piece in pieces)

        wanted = sorted({min(largest, headroom * root) for headroom in HEADROOMS[self.bits]})
        scales = [max(each / self.largest, torch.finfo(torch.float32).tiny) for each in wanted]  # even of zeros
        return scales[0] if len(scales) == 1 else min(scales, key=error)


def check_bits(name: str, value: Any) -> None:
    """Reject widths that there are no codes of."""
    if value not in CODES:
        raise ValueError(f"{name} must be 4 or 8, got {value!r}.")


class QuantizedEmbedding(Embedding):
    """`T[x] = scale · codes[x]`: one row of integers for each id, rounded from a trained table by `fit_to`.

    Codes count as parameters; scales do not.

    bits: of a code: 8, or 4 (two codes in a byte).
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
        self.scale.fill_(START_HEADROOM[self.codes.bits] * size / self.codes.largest)
        for block in blocks(self.num_embeddings, BLOCK):
            drawn = torch.randn(len(block), self.embedding_dim, generator=generator, device="cpu")
            self._round(int(block[0]), drawn.mul_(deviation))

    @property
    def num_params(self) -> int:
        num_params: int = self.num_embeddings * self.embedding_dim
        return num_params

    @property
    def codebook_nbytes(self) -> int:
        return super().codebook_nbytes + self.codes.nbytes

    @property
    def pointer_nbytes(self) -> int:
        return 0

    def embed(self, ids: Tensor) -> Tensor:
        return self.codes.read(ids).to(self.scale.dtype) * self.scale

    @torch.no_grad()
    def fit_to(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """Fit the scale to `weight`, and round it to the nearest codes."""
        check_weight(self, weight)
        parts = weight.float().unbind(1) if self.scale.numel() > 1 else [weight.float()]
        self.scale.copy_(torch.tensor([self.codes.fitted_scale(part) for part in parts]))
        for block in blocks(self.num_embeddings, BLOCK):
            self._round(int(block[0]), weight[block.to(weight.device)].float())

    def _round(self, first: int, values: Tensor) -> None:
        self.codes.write(first, values.to(self.scale.device), self.scale.float())

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Options) -> Shapes:
        num_scales = embedding_dim if arguments["scale_by"] == "column" else 1
        return Shapes(
            {"scale": (1, num_scales)},
            codes=(num_embeddings, embedding_dim),
            code_row_nbytes=_row_nbytes(embedding_dim, arguments["bits"]),
        )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, bits={self.codes.bits}"


def _row_nbytes(width: int, bits: int) -> int:
    return -(-width * bits // 8)


def _sum_of_squares(pieces: Iterable[Tensor]) -> float:
    return sum(float(piece.square().sum(dtype=torch.float64)) for piece in pieces)
