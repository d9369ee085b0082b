"""What the three compositional embeddings share: an id has one row of each of several small tables.

Shi et al., "Compositional embeddings using complementary partitions for memory-efficient recommendation systems"
(KDD 2020) split an id by quotient and remainder; hash functions serve as well and leave the sizes free.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from cce.checks import check_divides, check_range
from cce.embeddings.base import check_budget
from cce.embeddings.initialization import new_parameter
from cce.embeddings.linear import RowEmbedding
from cce.embeddings.options import choice, rules, whole
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
    import torch

Split = Literal["hash", "quotient-remainder"]
SPLIT = choice("hash", "quotient-remainder")
PAPER_COLUMNS = 4  # "The value c = 4 was chosen to match" Shi et al.


class CompositionalEmbedding(RowEmbedding):
    """Tables of equal width, one below the other in the codebook; an id has one row of each, which `split` names.

    split: "hash", equal tables and a hash function for each; or "quotient-remainder", digits of the id, where the
        first table has `num_rows` rows and the others as few as the ids allow.
    """

    option_checks = rules(num_rows=whole(1), num_tables=whole(1), split=SPLIT)

    @classmethod
    @abstractmethod
    def pieces(cls, embedding_dim: int, options: Mapping[str, Any]) -> tuple[int, int]:
        """The number of tables, and the width of their rows."""

    def make_tables(
        self,
        options: Mapping[str, Any],
        generator: torch.Generator | None,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        """Make the tables and what names their rows; the rest of a constructor."""
        self.check_options(**options)
        self.num_tables, width = self.pieces(self.embedding_dim, options)
        rows = rows_of_tables(options, self.num_embeddings, self.num_tables)
        if options["split"] == "hash":
            self.split: MultiplyShift | QuotientRemainder = MultiplyShift(
                self.num_tables, options["num_rows"], device="meta"
            )
        elif math.prod(rows) < self.num_embeddings:
            size, num_rows = self.num_embeddings, options["num_rows"]
            raise ValueError(f"num_rows must be num_embeddings={size} with a single table, got {num_rows}.")
        else:
            self.split = QuotientRemainder(rows, self.num_embeddings)
        self.codebook = new_parameter((sum(rows), width), device=device, dtype=dtype)
        self.reset_parameters(generator)

    def split_rows(self) -> RowSource:
        """One row of each table."""
        if isinstance(self.split, QuotientRemainder):
            return DigitRows(self.split)
        first_rows = range(0, self.num_tables * self.split.num_rows, self.split.num_rows)
        return HashedRows(self.split, slots=range(self.num_tables), first_rows=first_rows)

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Mapping[str, Any]) -> Shapes:
        """The rows of all tables, and their hash functions."""
        num_tables, width = cls.pieces(embedding_dim, arguments)
        rows = rows_of_tables(arguments, num_embeddings, num_tables)
        return Shapes({"codebook": (sum(rows), width)}, num_tables if arguments["split"] == "hash" else 0)

    @classmethod
    def size_for_budget(
        cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Equal tables for hashing; for quotient–remainder, the remainder's table takes what is left."""
        num_tables, width = cls.pieces(embedding_dim, options)
        if options["split"] == "hash":
            check_budget(cls.method, num_params, num_tables * width)
            return {"num_rows": num_params // (num_tables * width)}
        check_budget(cls.method, num_params, sum(balanced_radices(num_embeddings, num_tables)) * width)
        radices = radices_within(num_embeddings, num_tables, num_params // width)
        assert radices is not None  # the balanced radices fit
        return {"num_rows": radices[0]}


def rows_of_tables(options: Mapping[str, Any], num_embeddings: int, num_tables: int) -> tuple[int, ...]:
    """Rows of each table: equal if hashed; by quotient–remainder those after the first are as small as ids allow."""
    num_rows = options["num_rows"]
    if options["split"] == "hash":
        return (num_rows,) * num_tables
    rest = balanced_radices(-(-num_embeddings // num_rows), num_tables - 1) if num_tables > 1 else ()
    return (num_rows, *rest)


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
