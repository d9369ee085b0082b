"""A memory budget: how much the tables may hold together, and how it is shared out. No torch here.

The meaning is the same everywhere, for one table, a collection, a model that is compressed and a training run:

- `cap`: most parameters of any one table. A table that is smaller in full is kept in full. This is how the paper sizes
  its 26 features.
- `num_params`, `nbytes`: parameters, or bytes with pointers, of all tables together.
- `compression`: all tables together have this many times fewer parameters than the full tables.

A total gives every table the same most, as large as the total allows: a small vocabulary then keeps its table in full,
and only large ones are compressed.
"""

from dataclasses import dataclass

from cce.checks import check_number, check_range, check_type, shown

FULL = "full"  # the method of a table that is not made smaller
FULL_SIZED = (FULL, "quantized")  # methods with a row for each id and no other size: they need no budget
SIZED_LATER = ("cce",)  # methods whose size is chosen after training: without a budget they have their usual one
DEFAULT_METHOD = "cce"  # of tables that do not fit in full
PAPER_METHOD = "cce-paper"  # of such tables in a run that follows the paper
MEASURES = ("cap", "num_params", "nbytes", "compression")
LARGEST = 2**63


class BudgetTooSmallError(ValueError):
    """A budget below the smallest tables of a method; `least` is one that works."""

    def __init__(self, message: str, least: int) -> None:
        super().__init__(message)
        self.least = least


@dataclass(frozen=True)
class Budget:
    """One of `cap`, `num_params`, `nbytes` and `compression`; none: full tables."""

    cap: int | None = None
    num_params: int | None = None
    nbytes: int | None = None
    compression: float | None = None

    def __post_init__(self) -> None:
        given = [name for name in MEASURES if getattr(self, name) is not None]
        if len(given) > 1:
            values = " and ".join(f"{name}={shown(getattr(self, name))}" for name in given)
            raise ValueError(f"give one of {_listed(MEASURES)}, got {values}.")
        for name in ("cap", "num_params", "nbytes"):
            if getattr(self, name) is not None:
                check_range(name, getattr(self, name), 1, LARGEST)
        if self.compression is not None:
            check_number("compression", self.compression, 1)

    @property
    def measure(self) -> str | None:
        """Which of the four is given; None for full tables."""
        return next((name for name in MEASURES if getattr(self, name) is not None), None)

    @property
    def is_full(self) -> bool:
        """Whether tables are not limited."""
        return self.measure is None

    def total(self, full_params: int) -> int:
        """The limit in units of the measure: parameters or bytes; of tables that in full have `full_params`."""
        assert self.measure is not None
        if self.compression is not None:
            return max(1, int(full_params / self.compression))
        limit: int = getattr(self, self.measure)
        return limit

    def check_compression(self) -> None:
        """Reject a budget in shares of full tables, for tables of which there is no full one."""
        if self.compression is not None:
            raise ValueError("compression must be left out with num_embeddings=None: there is no full table.")

    def __str__(self) -> str:
        """The argument that was given."""
        return "full tables" if self.measure is None else f"{self.measure}={getattr(self, self.measure)}"


def make_budget(
    budget: Budget | None,
    cap: int | None,
    num_params: int | None,
    nbytes: int | None,
    compression: float | None,
) -> Budget:
    """`budget`, or the one given by one of the four limits."""
    check_type("budget", budget, (Budget, type(None)), "a cce.budget.Budget")
    given = Budget(cap, num_params, nbytes, compression)
    if budget is None:
        return given
    if not given.is_full:
        raise ValueError(f"give budget or {_listed(MEASURES, 'or')}, got budget={budget} and {given}.")
    return budget


def check_given(budget: Budget, method: str) -> None:
    """Reject a budget without a limit, where tables are to become smaller and their method needs to be told."""
    if budget.is_full and method not in (*FULL_SIZED, *SIZED_LATER):
        raise ValueError(f"give one of {_listed(MEASURES)}, or a budget, got none.")


def _listed(names: tuple[str, ...], word: str = "and") -> str:
    return f"{', '.join(names[:-1])} {word} {names[-1]}"
