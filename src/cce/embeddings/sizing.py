"""What a table of some sizes holds, before it is made, and the sizes that a budget gives it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cce.budget import FULL_SIZED, SIZED_LATER, Budget, BudgetTooSmallError
from cce.checks import check_range
from cce.footprint import Footprint
from cce.indexing import SEED_BYTES, pointer_nbytes

if TYPE_CHECKING:
    from cce.embeddings.base import Embedding
    from cce.embeddings.options import Options

PRECISION = 256  # a table sized in bytes may be so much smaller than it could be, 1 in 256
MOST_OPEN = 2**31  # ids, for a size above that of any open table
OPEN_ERROR = "num_embeddings must be a number for method {method!r}, which is made for known ids, got None."
AMPLE = 1 << 24  # parameters: with this many, a method rejects nothing but a wrong option
MAP_BYTES = 12  # of a row map, for 64 ids


@dataclass(frozen=True)
class Shapes:
    """Shapes of the parameters, by name, and the sizes of what says where to look."""

    parameters: Mapping[str, tuple[int, int]]
    num_hashes: int = 0  # hash functions
    pointers: tuple[int, int, int] = (0, 0, 1)  # ids, columns, and rows that a pointer can name
    other_nbytes: int = 0  # of whatever else it keeps
    codes: tuple[int, int] = (0, 0)  # rows of trained integers, and their width
    code_row_nbytes: int = 0  # of a row of them
    num_mapped: int = 0  # ids that have a bit, and a share of a rank, in a row map

    @property
    def num_params(self) -> int:
        """All parameters; of rows of integers, the integers alone."""
        return math.prod(self.codes) or self._num_floats

    def codebook_nbytes(self, itemsize: int) -> int:
        """Bytes of everything trainable; a parameter has `itemsize`."""
        return self._num_floats * itemsize + self.codes[0] * self.code_row_nbytes

    @property
    def pointer_nbytes(self) -> int:
        """Bytes of pointers, of the seeds of hash functions, and of a row map."""
        mapped = -(-self.num_mapped // 64) * MAP_BYTES
        return pointer_nbytes(*self.pointers) + self.num_hashes * SEED_BYTES + self.other_nbytes + mapped

    @property
    def _num_floats(self) -> int:
        return sum(math.prod(shape) for shape in self.parameters.values())


@dataclass(frozen=True)
class TableRequest:
    """A request for a table of a method: everything but its size."""

    kind: type[Embedding]
    num_embeddings: int | None
    embedding_dim: int
    options: Mapping[str, Any] = field(default_factory=dict)  # further arguments of the class
    name: str = ""
    itemsize: int = 4  # bytes of a parameter

    def __post_init__(self) -> None:
        if self.num_embeddings is None and not self.kind.takes_any_id:
            raise ValueError(OPEN_ERROR.format(method=self.kind.method))
        if self.num_embeddings is not None:
            check_range("num_embeddings", self.num_embeddings, 1, 2**63)
        check_range("embedding_dim", self.embedding_dim, 1, 2**63)

    @cached_property
    def full(self) -> Footprint:
        """The full table; of any ids, one larger than any that there is."""
        size = (self.num_embeddings or MOST_OPEN) * self.embedding_dim
        return Footprint(
            *(self.name, "full", self.num_embeddings or 0, self.embedding_dim, size, size * self.itemsize, 0),
            full_params=size,
            full_nbytes=size * self.itemsize,
        )

    @cached_property
    def largest(self) -> Footprint:
        """The table where there is room for everything: the full one, unless the method has a size of its own."""
        if self.kind.method in FULL_SIZED:
            return self._footprint({})
        if self.kind.method not in SIZED_LATER:
            return self.full
        usual = self._footprint({})
        return usual if usual.nbytes < self.full.nbytes else self.full

    @property
    def ample(self) -> Footprint:
        """The largest table, in whose place an open one that grows without limit counts as full."""
        return self.full if self.num_embeddings is None and not self.largest.num_params else self.largest

    @cached_property
    def fewest(self) -> int:
        """The smallest budget in parameters; that of the full table if there is none below.

        A table may have more of them until it is first clustered.
        """
        low, high = 1, self.full.num_params
        if not self._is_enough(high):  # too few ids for the method, or a wrong option
            self._size_for_budget(max(high, AMPLE))
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._is_enough(middle) else (middle + 1, high)
        return low

    def _is_enough(self, num_params: int) -> bool:
        try:
            self._size_for_budget(num_params)
        except ValueError:
            return False
        return True

    @cached_property
    def smallest(self) -> Footprint:
        """The table of the fewest parameters; the full one if that has fewer."""
        is_larger = self.fewest >= self.full.num_params
        return self.largest if is_larger else self._footprint(self._size_for_budget(self.fewest))

    def within(self, limit: float, measure: str = "num_params") -> Footprint:
        """The largest table of at most `limit` parameters, or bytes; the smallest where none is so small.

        The full table, if it is within the limit.
        """
        if limit >= getattr(self.ample, measure):
            return self._footprint(self.sizes(int(limit), measure)) if self._is_open else self.largest
        if limit <= (self.fewest if measure == "num_params" else self.smallest.nbytes):
            return self.smallest
        return self._footprint(self.sizes(int(limit), measure))

    @property
    def _is_open(self) -> bool:
        """Whether the largest table has no size yet, that a budget would have to hold."""
        is_given = self.options.get(self.kind.sized_by or "") is not None
        return self.largest.method in SIZED_LATER and self.num_embeddings is not None and not is_given

    def sizes(self, limit: int, measure: str = "num_params") -> Options:
        """The arguments of the constructor that make the largest table of at most `limit` parameters, or bytes."""
        if measure == "num_params":
            sizes = self._size_for_budget(limit)
        else:
            size = self.num_embeddings, self.embedding_dim, limit
            sizes = self.kind.size_for_bytes(*size, self._complete, itemsize=self.itemsize)
        for name, value in sizes.items():
            if self.options.get(name) not in (None, value):
                raise ValueError(f"{name} follows from the budget: leave it out, got {name}={self.options[name]}.")
        return sizes

    def _size_for_budget(self, num_params: int) -> Options:
        return self.kind.size_for_budget(self.num_embeddings, self.embedding_dim, num_params, self._complete)

    def for_budget(self, budget: Budget) -> Footprint:
        """The table that its own budget gives it; a budget below the smallest table is rejected."""
        if budget.is_full:
            return self.largest
        if self.num_embeddings is None:
            budget.check_compression()
        measure, limit = ("nbytes" if budget.nbytes else "num_params"), budget.total(self.full.num_params)
        least = self.least(budget)
        if limit < least:
            given = "cap" if budget.cap is not None else measure
            of = f"the table of {self.name!r}" if self.name and given == "cap" else "these sizes"
            message = f"{given} must be at least {least} for method {self.kind.method!r} of {of}, got {limit}."
            raise BudgetTooSmallError(message, least)
        return self.within(limit, measure)

    def least(self, budget: Budget) -> int:
        """The smallest budget of this kind, in its measure; a cap does not hold for methods of full size."""
        if budget.nbytes is not None:
            return min(self.smallest.nbytes, self.ample.nbytes)
        if budget.cap is not None and self.kind.method in FULL_SIZED:
            return 0
        return min(self.fewest, self.ample.num_params)

    @cached_property
    def _complete(self) -> Options:
        return self.kind.complete_options(self.options)

    def _footprint(self, sizes: Options) -> Footprint:
        arguments = self._complete | sizes
        found = self.kind.footprint(self.num_embeddings, self.embedding_dim, arguments, itemsize=self.itemsize)
        return replace(found, name=self.name, sizes=sizes)


def most_within(limit: int, most: int, weight: Callable[[int], int]) -> int | None:
    """Nearly the largest number up to `most` whose weight is within the limit: at most one in 256 less.

    A number whose weight raises a ValueError is too small; None if every number within the limit is.
    """

    def is_too_heavy(number: int) -> bool:
        try:
            return weight(number) > limit
        except ValueError:
            return False

    low, high = 0 if is_too_heavy(most) else most, most
    while high - low > low // PRECISION:
        middle = (low + high + 1) // 2
        if is_too_heavy(middle):
            high = middle - 1
        else:
            low = middle
    try:
        weight(low)
    except ValueError:
        return None
    return low
