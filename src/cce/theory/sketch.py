"""Count sketch: a random `H` with signs (Charikar, Chen and Farach-Colton, 2002; the paper's appendix "Hashing").

Row `i` has `s(i)` in column `h(i)`. With several values in a row, columns are split into equal segments with a hash
function into each, as the analysis of sparse Johnson–Lindenstrauss advises (Cohen, Jayram and Nelson, 2018).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from cce.checks import check_divides, check_range
from cce.indexing import MultiplyShift
from cce.theory.factor import SparseFactor

if TYPE_CHECKING:
    from torch import Generator


def count_sketch(
    num_embeddings: int, num_rows: int, *, num_ones: int = 1, generator: Generator | None = None
) -> SparseFactor:
    """`num_ones` random signs in each row, one in each segment of the `num_rows` columns."""
    check_range("num_embeddings", num_embeddings, 1, 2**31)
    check_range("num_rows", num_rows, 1, 2**31)
    check_divides("num_ones", num_ones, "num_rows", num_rows)
    ids = torch.arange(num_embeddings)
    rows = MultiplyShift(num_ones, num_rows // num_ones, generator=generator).stacked(ids)
    signs = MultiplyShift(num_ones, 2, generator=generator).signs(ids)
    return SparseFactor(rows, signs.double(), num_rows)
