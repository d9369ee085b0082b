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
from cce.embeddings.shapes import Shapes
from cce.indexing import (
    DigitRows,
    HashedRows,
    MultiplyShift,
    QuotientRemainder,
    RowSource,
    balanced_radices,
    radices_within,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

Split = Literal["hash", "quotient-remainder"]
split_check = choice("hash", "quotient-remainder")
PAPER_COLUMNS = 4  # "The value c = 4 was chosen to match" Shi et al.


def default_columns(embedding_dim: int) -> int:
    """The divisor of `embedding_dim` nearest to the paper's 4, the larger of two as near."""
    candidates = range(1, min(embedding_dim, 2 * PAPER_COLUMNS - 1) + 1)  # beyond them, 1 is nearer
    divisors = (n for n in candidates if embedding_dim % n == 0)
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
    split: Split, num_embeddings: int, *, num_tables: int, num_rows: int
) -> MultiplyShift | QuotientRemainder:
    """`num_tables` functions from ids to rows, not yet drawn; by quotient–remainder the first has `num_rows` rows."""
    if split == "hash":
        return MultiplyShift(num_tables, num_rows, device="meta")
    radices = rows_of_tables(split, num_embeddings, num_tables=num_tables, num_rows=num_rows)
    if math.prod(radices) < num_embeddings:
        raise ValueError(f"num_rows must be num_embeddings={num_embeddings} with a single table, got {num_rows}.")
    return QuotientRemainder(radices, num_embeddings)


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


def split_shapes(arguments: Mapping[str, Any], num_embeddings: int, *, num_tables: int, width: int) -> Shapes:
    """The tables, one below the other, and their hash functions."""
    rows = rows_of_tables(arguments["split"], num_embeddings, num_tables=num_tables, num_rows=arguments["num_rows"])
    num_hashes = num_tables if arguments["split"] == "hash" else 0
    return Shapes({"codebook": (sum(rows), width)}, num_hashes)


def rows_of_tables(split: Split, num_embeddings: int, *, num_tables: int, num_rows: int) -> tuple[int, ...]:
    """Rows of each table: equal if hashed; by quotient–remainder those after the first are as small as ids allow."""
    if split == "hash":
        return (num_rows,) * num_tables
    rest = balanced_radices(-(-num_embeddings // num_rows), num_tables - 1) if num_tables > 1 else ()
    return (num_rows, *rest)
