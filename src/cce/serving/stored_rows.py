"""`StoredRows`: rows of a codebook for inference, in full, half or 8-bit precision, read back as float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from cce.checks import check_choice

Codebook = Literal["float32", "float16", "bfloat16", "int8"]
CODEBOOKS: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int8": torch.int8,
}
LARGEST = 127  # code of 8 bits; −128 is not used, so that scales are symmetric


class StoredRows(nn.Module):
    """Values `(num_rows, width)`, and for integers a scale `(num_slots, width)`: one for each column of each table.

    An id reads `num_slots` rows. Slots that read the same rows of the codebook have the same scale.
    """

    values: Tensor
    scale: Tensor | None

    def __init__(self, values: Tensor, scale: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("values", values)
        self.register_buffer("scale", scale)

    @classmethod
    def of(cls, rows: Tensor, codebook: Codebook, tables: Sequence[tuple[int, int]] | None = None) -> StoredRows:
        """Round `rows` to a precision; `tables` are the first row and the number of rows that each slot can read."""
        check_choice("codebook", codebook, CODEBOOKS)
        rows = rows.detach().cpu()
        if codebook != "int8":
            return cls(rows.to(CODEBOOKS[codebook], copy=True).contiguous())
        tables = [(0, len(rows))] if tables is None else tables
        values, scales = torch.zeros(rows.shape, dtype=torch.int8, device="cpu"), {}
        for first, num_rows in dict.fromkeys(tables):
            part = rows[first : first + num_rows].float()
            scale = (part.abs().amax(0) / LARGEST).clamp(min=torch.finfo(torch.float32).tiny)
            values[first : first + num_rows] = (part / scale).round().clamp(-LARGEST, LARGEST).to(torch.int8)
            scales[first, num_rows] = scale
        return cls(values, torch.stack([scales[table] for table in tables]))

    def forward(self, rows: Tensor) -> Tensor:
        """Rows `(n, num_slots)` as vectors `(n, num_slots, width)` of float32."""
        found = self.values.index_select(0, rows.reshape(-1))
        found = found.view(*rows.shape, self.values.shape[1]).to(torch.float32)
        return found if self.scale is None else found * self.scale
