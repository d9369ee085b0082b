"""A request for one table, and the table that a budget gives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cce.budget import FULL_SIZED, SIZED_LATER, Budget, BudgetTooSmallError
from cce.footprint import Footprint

if TYPE_CHECKING:
    from cce.embeddings.base import Embedding

PRECISION = 256  # a table sized in bytes may be so much smaller than it could be, 1 in 256


@dataclass(frozen=True)
class TableRequest:
    """A request for a table of a method: everything but its size."""

    kind: type[Embedding]
    num_embeddings: int
    embedding_dim: int
    options: Mapping[str, Any] = field(default_factory=dict)  # further arguments of the class
    name: str = ""
    itemsize: int = 4  # bytes of a parameter

    @cached_property
    def full(self) -> Footprint:
        """The full table."""
        size = self.num_embeddings * self.embedding_dim
        return Footprint(
            *(self.name, "full", self.num_embeddings, self.embedding_dim, size, size * self.itemsize, 0),
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

    @cached_property
    def fewest_params(self) -> Footprint:
        """The table of the fewest parameters, or the full one if that has fewer."""
        if self.fewest >= self.full.num_params:
            return self.largest
        size = self.num_embeddings, self.embedding_dim, self.fewest, self._complete
        return self._footprint(self.kind.size_for_budget(*size))

    @cached_property
    def fewest(self) -> int:
        """The smallest budget in parameters; a table may have more of them until it is first clustered."""
        return self.kind.smallest_budget(self.num_embeddings, self.embedding_dim, self._complete)

    @cached_property
    def fewest_bytes(self) -> Footprint:
        """The table of the fewest bytes."""
        smallest = self.fewest_params
        return (
            smallest
            if smallest is self.largest
            else self._footprint(smallest.sizes | self.kind.smallest_options(self._complete))
        )

    def smallest(self, measure: str) -> Footprint:
        """The smallest table there is, in parameters or bytes."""
        return self.fewest_params if measure == "num_params" else self.fewest_bytes

    def within(self, limit: float, measure: str = "num_params") -> Footprint:
        """The largest table of at most `limit` parameters, or bytes; the smallest where none is so small.

        The full table, if it is within the limit.
        """
        if limit >= getattr(self.largest, measure):
            return self.largest
        smallest = self.smallest(measure)
        if limit <= (self.fewest if measure == "num_params" else smallest.nbytes):
            return smallest
        size = self.num_embeddings, self.embedding_dim, int(limit), self._complete
        sizes = self.kind.size_for_budget(*size) if measure == "num_params" else self._sizes_for_bytes(size)
        self._check_given(sizes)
        return self._footprint(sizes)

    def for_budget(self, budget: Budget) -> Footprint:
        """The table that its own budget gives it; a budget below the smallest table is rejected."""
        if budget.is_full:
            return self.largest
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
            return min(self.fewest_bytes.nbytes, self.largest.nbytes)
        if budget.cap is not None and self.kind.method in FULL_SIZED:
            return 0
        return min(self.fewest, self.largest.num_params)

    @cached_property
    def _complete(self) -> dict[str, Any]:
        return self.kind.complete_options(self.options)

    def _sizes_for_bytes(self, size: tuple[int, int, int, Mapping[str, Any]]) -> dict[str, Any]:
        return self.kind.size_for_bytes(*size, itemsize=self.itemsize)

    def _footprint(self, sizes: dict[str, Any]) -> Footprint:
        arguments = self._complete | sizes
        found = self.kind.footprint(self.num_embeddings, self.embedding_dim, arguments, itemsize=self.itemsize)
        return replace(found, name=self.name, sizes=sizes)

    def _check_given(self, sizes: Mapping[str, Any]) -> None:
        for name, size in sizes.items():
            if self.options.get(name) not in (None, size):
                raise ValueError(f"{name} follows from the budget: leave it out, got {name}={self.options[name]}.")


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
