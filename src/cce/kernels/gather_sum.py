"""`gather_sum`: the product `H · M` for sparse H, in plain torch. This is the definition other versions are held to."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def gather_rows(codebook: Tensor, rows: Tensor, *, sparse: bool = False) -> Tensor:
    """Rows `(*s)` of a codebook `(num_rows, width)` as vectors `(*s, width)`; `sparse` asks for a sparse gradient."""
    if sparse:
        return functional.embedding(rows, codebook, sparse=True)
    # index_select is three times as fast as functional.embedding on the CPU, forward and backward together
    return codebook.index_select(0, rows.reshape(-1)).view(*rows.shape, codebook.shape[1])


def gather_sum(codebook: Tensor, rows: Tensor, weights: Tensor | None = None, *, sparse: bool = False) -> Tensor:
    """Sum the rows of each column over its terms, and set the columns side by side.

    codebook: (num_rows, width);  rows and weights: (batch, columns, terms)  →  (batch, columns · width)
    """
    pieces = gather_rows(codebook, rows, sparse=sparse)  # (batch, columns, terms, width)
    if weights is not None:
        pieces = pieces * weights.to(pieces.dtype).unsqueeze(-1)
    return pieces.sum(dim=-2).flatten(start_dim=1)
