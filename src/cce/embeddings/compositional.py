"""What the three compositional embeddings share: how an id is split into one row of each of several small tables.

Shi et al., "Compositional embeddings using complementary partitions for memory-efficient recommendation systems"
(KDD 2020) split an id by quotient and remainder; hash functions serve as well and leave the sizes free.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from cce.checks import check_divides, check_range
from cce.embeddings.base import check_budget
from cce.embeddings.options import choice
from cce.indexing import MultiplyShift, QuotientRemainder, balanced_radices, radices_within
from cce.indexing.multiply_shift import SEED_BYTES
from cce.indexing.sources import DigitRows, HashedRows, RowSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

Split = Literal["hash", "quotient-remainder"]
split_check = choice("hash", "quotient-remainder")
PAPER_COLUMNS = 4  # "The value c = 4 was chosen to match" Shi et al.


def default_columns(embedding_dim: int) -> int:
    """The divisor of `embedding_dim` nearest to the paper's 4, the larger of two as near."""
    divisors = (n for n in range(1, embedding_dim + 1) if embedding_dim % n == 0)
    return min(divisors, key=lambda n: (abs(n - PAPER_COLUMNS), -n))


def piece_shape(embedding_dim: int, num_columns: int | None, *, summed: bool = False) -> tuple[int, int]:
    """The number of columns, or its default, and the width of a piece: a part of the vector, or all of it if summed."""
    num_columns = default_columns(embedding_dim) if num_columns is None else num_columns
    check_range("num_columns", num_columns, 1, 2**31)
    if summed:
        return num_columns, embedding_dim
    check_divides("num_columns", num_columns, "embedding_dim", embedding_dim)
    return num_columns, embedding_dim // num_columns


def make_split(
    split: Split, num_embeddings: int, *, num_tables: int, num_rows: int, generator: torch.Generator | None
) -> MultiplyShift | QuotientRemainder:
    """`num_tables` functions from ids to rows; by quotient–remainder the first table has `num_rows` rows."""
    if split == "hash":
        return MultiplyShift(num_tables, num_rows, generator=generator)
    quotients = -(-num_embeddings // num_rows)
    rest = balanced_radices(quotients, num_tables - 1) if num_tables > 1 else ()
    if math.prod((num_rows, *rest)) < num_embeddings:
        raise ValueError(f"num_rows must be num_embeddings={num_embeddings} with a single table, got {num_rows}.")
    return QuotientRemainder((num_rows, *rest), num_embeddings)


def split_rows(split: MultiplyShift | QuotientRemainder) -> RowSource:
    """One row of each table; the tables lie one below the other."""
    if isinstance(split, QuotientRemainder):
        return DigitRows(split)
    first_rows = range(0, split.num_hashes * split.num_rows, split.num_rows)
    return HashedRows(split, slots=range(split.num_hashes), first_rows=first_rows)


def size_split(
    method: str, split: Split, num_embeddings: int, *, num_tables: int, width: int, num_params: int
) -> dict[str, Any]:
    """The `num_rows` that spends a budget of `num_params` on tables of this `width`."""
    if split == "hash":
        check_budget(method, num_params, num_tables * width)
        return {"num_rows": num_params // (num_tables * width)}
    radices = radices_within(num_embeddings, num_tables, num_params // width)
    smallest = sum(balanced_radices(num_embeddings, num_tables)) * width
    check_budget(method, num_params, smallest)
    assert radices is not None  # the balanced radices fit
    return {"num_rows": radices[0]}


def weigh_split(arguments: Mapping[str, Any], num_embeddings: int, *, num_tables: int, width: int) -> tuple[int, int]:
    """Trainable numbers of the tables, and bytes of seeds."""
    num_rows = arguments["num_rows"]
    if arguments["split"] == "hash":
        return num_tables * num_rows * width, num_tables * SEED_BYTES
    rest = balanced_radices(-(-num_embeddings // num_rows), num_tables - 1) if num_tables > 1 else ()
    return (num_rows + sum(rest)) * width, 0
