"""Compositional embeddings: an id has one row of each of several small tables, side by side, summed or multiplied.

Shi et al., "Compositional embeddings using complementary partitions for memory-efficient recommendation systems"
(KDD 2020) split an id by quotient and remainder; hash functions serve as well and leave the sizes free.
"""

import math
from typing import Literal, Unpack

import torch
from torch import Tensor

from cce.checks import check_divides, check_range
from cce.embeddings.base import check_budget
from cce.embeddings.initialization import normal_, output_variance, scale_factor
from cce.embeddings.linear import LinearEmbedding, RowEmbedding
from cce.embeddings.options import CommonOptions, Options, choice, optional, rules, whole
from cce.embeddings.sizing import Shapes
from cce.indexing import (
    DigitRows,
    HashedRows,
    MultiplyShift,
    QuotientRemainder,
    RowSource,
    balanced_radices,
    radices_within,
)
from cce.kernels import Layout

Split = Literal["hash", "quotient-remainder"]
SPLIT = choice("hash", "quotient-remainder")
PAPER_COLUMNS = 4  # "The value c = 4 was chosen to match" Shi et al.


class CompositionalEmbedding(RowEmbedding):
    """Tables of equal width, one below the other in the codebook; an id has one row of each, which `split` names.

    split: "hash", equal tables and a hash function for each; or "quotient-remainder", digits of the id, where the
        first table has `num_rows` rows and the others as few as the ids allow.
    """

    takes_any_id = True
    option_checks = rules(num_rows=whole(1), num_tables=whole(1), split=SPLIT)

    def __init__(
        self,
        num_embeddings: int | None,
        embedding_dim: int,
        *,
        num_rows: int,
        num_tables: int = 2,
        split: Split = "hash",
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, **common)
        self.make_tables(self.check_options(num_rows=num_rows, num_tables=num_tables, split=split), common)

    @classmethod
    def pieces(cls, embedding_dim: int, options: Options) -> tuple[int, int]:
        """The number of tables, and the width of their rows: the full one."""
        return options["num_tables"], embedding_dim

    def make_tables(self, options: Options, common: CommonOptions) -> None:
        """Make the tables and what names their rows; the rest of a constructor."""
        self.num_tables, _ = self.pieces(self.embedding_dim, options)
        rows = rows_of_tables(options, self.num_embeddings, self.num_tables)
        if options["split"] == "hash":
            self.split: MultiplyShift | QuotientRemainder = MultiplyShift(
                self.num_tables, options["num_rows"], device="meta"
            )
        elif self.num_embeddings is None or math.prod(rows) < self.num_embeddings:
            size, num_rows = self.num_embeddings, options["num_rows"]
            raise ValueError(f"num_rows must be num_embeddings={size} with a single table, got {num_rows}.")
        else:
            self.split = QuotientRemainder(rows, self.num_embeddings)
        self.make_parameters(options, common)

    def split_rows(self) -> RowSource:
        """One row of each table."""
        if isinstance(self.split, QuotientRemainder):
            return DigitRows(self.split)
        first_rows = range(0, self.num_tables * self.split.num_rows, self.split.num_rows)
        return HashedRows(self.split, slots=range(self.num_tables), first_rows=first_rows)

    @classmethod
    def shapes(cls, num_embeddings: int | None, embedding_dim: int, arguments: Options) -> Shapes:
        num_tables, width = cls.pieces(embedding_dim, arguments)
        rows = rows_of_tables(arguments, num_embeddings, num_tables)
        return Shapes({"codebook": (sum(rows), width)}, num_tables if arguments["split"] == "hash" else 0)

    @classmethod
    def size_for_budget(
        cls, num_embeddings: int | None, embedding_dim: int, num_params: int, options: Options
    ) -> Options:
        """Equal tables for hashing; for quotient–remainder, the remainder's table takes what is left."""
        if options["split"] == "hash":
            return super().size_for_budget(num_embeddings, embedding_dim, num_params, options)
        num_tables, width = cls.pieces(embedding_dim, options)
        rows_of_tables({"num_rows": 1, **options}, num_embeddings, num_tables)
        assert num_embeddings is not None
        check_budget(cls.method, num_params, sum(balanced_radices(num_embeddings, num_tables)) * width)
        radices = radices_within(num_embeddings, num_tables, num_params // width)
        assert radices is not None  # the balanced radices fit
        return {"num_rows": radices[0]}


class CompositionalConcatEmbedding(CompositionalEmbedding, LinearEmbedding):
    """`T[x] = [M_1[h_1(x)] | … | M_c[h_c(x)]]` with `num_columns` tables of `embedding_dim / num_columns` values.

    `H` has one 1 in each block of rows, and M is block-diagonal.
    """

    method = "ce-concat"
    option_checks = rules(num_rows=whole(1), num_columns=optional(whole(1)), split=SPLIT)

    def __init__(
        self,
        num_embeddings: int | None,
        embedding_dim: int,
        *,
        num_rows: int,
        num_columns: int | None = None,
        split: Split = "hash",
        **common: Unpack[CommonOptions],
    ) -> None:
        LinearEmbedding.__init__(self, num_embeddings, embedding_dim, **common)
        self.make_tables(self.check_options(num_rows=num_rows, num_columns=num_columns, split=split), common)

    def sources(self) -> tuple[int, int, list[RowSource]]:
        return self.num_tables, 1, [self.split_rows()]

    @classmethod
    def pieces(cls, embedding_dim: int, options: Options) -> tuple[int, int]:
        """A narrow table for each column."""
        return piece_shape(embedding_dim, options["num_columns"])


class CompositionalSumEmbedding(CompositionalEmbedding, LinearEmbedding):
    """`T[x] = M_1[h_1(x)] + … + M_t[h_t(x)]` with `num_tables` tables of full width.

    Unlike in hash embeddings every function has its own table.
    """

    method = "ce-sum"

    def sources(self) -> tuple[int, int, list[RowSource]]:
        return 1, self.num_tables, [self.split_rows()]


class CompositionalProductEmbedding(CompositionalEmbedding):
    """`T[x] = M_1[h_1(x)] ⊙ … ⊙ M_t[h_t(x)]` with `num_tables` tables of full width.

    Not linear in its tables; the CCE paper calls it hard to train.
    """

    method = "ce-mult"

    def init_parameters(self, generator: torch.Generator | None) -> None:
        """Variances of independent factors multiply; the first table carries the scale."""
        variance = output_variance(self.embedding_dim) ** (1 / self.num_tables)
        normal_(self.codebook, variance=variance, generator=generator)
        first_table = self.codebook[: self.split.rows_per_column[0]]
        scale_factor(first_table, self.start_variance, self.embedding_dim)

    def embed(self, ids: Tensor) -> Tensor:
        return self.look_up(ids).view(-1, self.num_tables, self.embedding_dim).prod(dim=1)

    def layout(self) -> Layout:
        """All factors side by side."""
        size, num_rows, sources = self.embedding_dim, len(self.codebook), (self.split_rows(),)
        return Layout(self.num_embeddings, self.num_tables, 1, size, num_rows, sources, self.padding_idx)


def rows_of_tables(options: Options, num_embeddings: int | None, num_tables: int) -> tuple[int, ...]:
    """Rows of each table: equal if hashed; by quotient–remainder those after the first are as small as ids allow."""
    num_rows = options["num_rows"]
    if options["split"] == "hash":
        return (num_rows,) * num_tables
    if num_embeddings is None:
        raise ValueError(f"split must be 'hash' with num_embeddings=None, got {options['split']!r}.")
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
