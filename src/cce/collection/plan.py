"""How a budget is shared out among features: which table each gets, and what it weighs. Nothing is allocated here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cce.checks import check_choice, check_number, check_range, check_type, shown
from cce.embeddings.base import MAX_IDS, Embedding
from cce.embeddings.registry import METHODS
from cce.text import format_bytes, format_ratio, format_table

AMPLE = 1 << 24  # trainable numbers: with so many, a method refuses nothing but a wrong option
RULES = ("cap", "proportional", "power")
BYTES = 4  # of a trainable number, float32
NUM_HALVINGS = 60  # of the range in which the scale of a budget is sought
HEADERS = ("feature", "method", "ids", "full params", "params", "codebook", "pointers", "fewer params", "fewer bytes")

MethodOf = str | Mapping[str, str] | Callable[[str, int], str]  # one name, names by feature, or a rule (name, ids)


@dataclass(frozen=True)
class TablePlan:
    """The table of one feature: its method, the arguments that size it, and what it will weigh."""

    name: str
    method: str
    num_embeddings: int
    embedding_dim: int
    num_params: int
    pointer_nbytes: int
    sizes: dict[str, Any]

    @property
    def full_params(self) -> int:
        """Of the full table."""
        return self.num_embeddings * self.embedding_dim

    @property
    def codebook_nbytes(self) -> int:
        """Bytes of everything trainable."""
        return self.num_params * BYTES

    @property
    def nbytes(self) -> int:
        """Bytes of everything stored."""
        return self.codebook_nbytes + self.pointer_nbytes

    @property
    def compression(self) -> float:
        """How many times fewer trainable numbers than the full table has."""
        return self.full_params / self.num_params

    @property
    def byte_compression(self) -> float:
        """How many times fewer bytes than the full table has."""
        return self.full_params * BYTES / self.nbytes


@dataclass(frozen=True)
class Plan:
    """The tables of all features, and both measures of compression: over all tables, and of the largest one."""

    tables: tuple[TablePlan, ...]

    @property
    def num_params(self) -> int:
        """Trainable numbers of all tables."""
        return sum(table.num_params for table in self.tables)

    @property
    def nbytes(self) -> int:
        """Bytes of all tables."""
        return sum(table.nbytes for table in self.tables)

    @property
    def total(self) -> TablePlan:
        """The tables added up."""
        (dim,) = {table.embedding_dim for table in self.tables}
        num_ids = sum(table.num_embeddings for table in self.tables)
        pointers = sum(table.pointer_nbytes for table in self.tables)
        return TablePlan("all tables", "", num_ids, dim, self.num_params, pointers, {})

    @property
    def largest(self) -> TablePlan:
        """The table that would be the largest if all were full."""
        return max(self.tables, key=lambda table: table.full_params)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as for JSON."""
        return {
            "tables": [_as_dict(table) for table in self.tables],
            "all_tables": _as_dict(self.total),
            "largest_table": _as_dict(self.largest),
        }

    def __str__(self) -> str:
        rows = [_row(table) for table in (*self.tables, self.total)]
        largest = self.largest
        note = f"largest table: {largest.name}, {format_ratio(largest.compression)} fewer params"
        return (
            f"{format_table(HEADERS, rows, num_left=2)}\n{note}, {format_ratio(largest.byte_compression)} fewer bytes"
        )


def plan_tables(
    vocabularies: Mapping[str, int],
    embedding_dim: int,
    *,
    method: MethodOf = "cce",
    cap: int | None = None,
    num_params: int | None = None,
    nbytes: int | None = None,
    compression: float | None = None,
    rule: str = "cap",
    power: float = 0.5,
    traffic: Mapping[str, float] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    num_learned: Mapping[str, int] | None = None,
) -> Plan:
    """A table for every feature, within one budget.

    cap: most trainable numbers of any one table (the paper). num_params, nbytes: of all tables together, or
        `compression` times fewer numbers than the full tables have. Give one of the four; without any, tables are full.
    rule: how a total is shared out: "cap" gives every table the same most, "proportional" the same compression, and
        "power" shares in proportion to `vocabulary ** power`, or to `traffic ** power` where that is given.
    method: of the tables that do not fit in full: one for all, by feature, or a function of name and vocabulary.
    options: further arguments of a method's class, by method.
    num_learned: by feature, how many ids (the first, which are the most frequent) have learned pointers, where the
        method has any; the rest stay hashed and cost nothing. Of features that are not named, all have.

    A feature whose full table fits in its share keeps its full table. None gets less than its method's smallest table.
    """
    check_choice("rule", rule, RULES)
    check_vocabularies("vocabularies", vocabularies)
    given = {"cap": cap, "num_params": num_params, "nbytes": nbytes, "compression": compression}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise ValueError(f"give one of cap, num_params, nbytes and compression, got {', '.join(named)}.")
    if rule != "cap" and named in ([], ["cap"]):
        raise ValueError(f"rule shares out a total: give num_params, nbytes or compression with rule={rule!r}.")
    _check_tables_of("options", options, METHODS)
    _check_tables_of("num_learned", num_learned, vocabularies)
    _check_tables_of("traffic", traffic, vocabularies)
    check_number("power", power)
    needs = [_Need(name, size, embedding_dim, _method_of(method, name, size), options or {}, num_learned or {})
             for name, size in vocabularies.items()]  # fmt: skip
    if not named:
        return Plan(tuple(need.table(need.full) for need in needs))
    if cap is not None:
        check_range("cap", cap, 1, MAX_IDS)
        return Plan(tuple(need.table(cap) for need in needs))
    if compression is not None:
        check_number("compression", compression, 1)
        num_params = int(sum(need.full for need in needs) / compression)
    shares = _shares(rule, needs, power, traffic)
    limit, measure = (num_params, "num_params") if nbytes is None else (nbytes, "nbytes")
    assert limit is not None
    return _largest_within(needs, shares, limit, measure)


def check_vocabularies(argument: str, vocabularies: Mapping[str, int]) -> None:
    """Reject anything but names of features with their numbers of ids."""
    example = "{'user': 6_000_000, 'item': 800_000}"
    check_type(argument, vocabularies, Mapping, f"a dictionary of names and numbers of ids such as {example}")
    if not vocabularies:
        raise ValueError(f"{argument} must name at least one feature, got none.")
    for name, num_ids in vocabularies.items():
        check_type(f"a name in {argument}", name, str, "a str")
        check_range(f"{argument}: the number of ids of {name!r}", num_ids, 1, MAX_IDS)


class _Need:
    """One feature, and the table it gets for a budget."""

    def __init__(
        self,
        name: str,
        num_ids: int,
        dim: int,
        method: str,
        options: Mapping[str, Mapping[str, Any]],
        num_learned: Mapping[str, int],
    ) -> None:
        check_range("embedding_dim", dim, 1, MAX_IDS)
        check_choice("method", method, METHODS)
        self.name, self.num_ids, self.dim, self.method = name, num_ids, dim, method
        self.full = num_ids * dim
        self.given = options.get(method, {})
        check_type(f"options of {method!r}", self.given, Mapping, "a dictionary of arguments")
        self.options = METHODS[method].complete_options(self.given)
        self.learned = {}
        if name in num_learned and "num_learned" in self.options:
            check_range(f"num_learned of {name!r}", num_learned[name], 0, num_ids + 1)
            self.learned = {"num_learned": num_learned[name]}
        self.smallest = self._smallest()

    def table(self, budget: float) -> TablePlan:
        """The largest table within the budget, or the smallest there is."""
        wanted = max(self.smallest, min(int(budget), self.full))
        if wanted >= self.full:
            return TablePlan(self.name, "full", self.num_ids, self.dim, self.full, 0, {})
        kind = METHODS[self.method]
        sizes = kind.sizes(self.num_ids, self.dim, wanted, self.options)
        for name in sizes:
            if self.given.get(name) not in (None, sizes[name]):
                raise ValueError(f"{name} follows from the budget: leave it out of options, got {self.given[name]}.")
        sizes |= self.learned
        weight = kind.weigh(self.num_ids, self.dim, self.options | sizes)
        return TablePlan(self.name, self.method, self.num_ids, self.dim, *weight, sizes)

    def _smallest(self) -> int:
        """The smallest budget that the method accepts; that of the full table if it accepts none below."""
        if not self._accepts(METHODS[self.method], self.full):  # too few ids for the method, or a wrong option
            METHODS[self.method].sizes(self.num_ids, self.dim, max(self.full, AMPLE), self.options)
        low, high = 1, self.full
        while low < high:
            middle = (low + high) // 2
            if self._accepts(METHODS[self.method], middle):
                high = middle
            else:
                low = middle + 1
        return low

    def _accepts(self, kind: type[Embedding], budget: int) -> bool:
        try:
            kind.sizes(self.num_ids, self.dim, budget, self.options)
        except ValueError:
            return False
        return True


def _check_tables_of(argument: str, given: Mapping[str, Any] | None, names: Iterable[str]) -> None:
    """Reject what is not a dictionary by these names."""
    check_type(argument, given, (Mapping, type(None)), "a dictionary by name")
    for name in given or {}:
        check_choice(f"a name in {argument}", name, names)


def _shares(rule: str, needs: list[_Need], power: float, traffic: Mapping[str, float] | None) -> list[float]:
    """What each table's budget is in proportion to."""
    if rule != "power" and traffic is not None:
        raise ValueError(f"traffic goes with rule='power', got rule={rule!r}.")
    if rule == "cap":
        return [1.0 for _ in needs]
    if rule == "proportional":
        return [float(need.full) for need in needs]
    if traffic is None:
        return [float(need.num_ids) ** power for need in needs]
    for need in needs:
        if need.name not in traffic:
            raise ValueError(f"traffic must name every feature, but does not name {need.name!r}, got {shown(traffic)}.")
        check_number(f"traffic of {need.name!r}", traffic[need.name])
    if not any(traffic[need.name] > 0 for need in needs):
        raise ValueError(f"traffic must hold a number above 0, got {shown(traffic)}.")
    return [float(traffic[need.name]) ** power for need in needs]


def _largest_within(needs: list[_Need], shares: list[float], limit: int, measure: str) -> Plan:
    """The plan with the largest scale of the shares that stays within the limit."""
    check_range(measure, limit, 1, MAX_IDS)

    def plan(scale: float) -> Plan:
        return Plan(tuple(need.table(scale * share) for need, share in zip(needs, shares, strict=True)))

    smallest = plan(0.0)
    if getattr(smallest, measure) > limit:
        raise ValueError(
            f"{measure} must be at least {getattr(smallest, measure)}, the smallest tables together, got {limit}."
        )
    high = max(need.full / share for need, share in zip(needs, shares, strict=True) if share > 0)
    if getattr(plan(high), measure) <= limit:
        return plan(high)
    low = 0.0
    for _ in range(NUM_HALVINGS):
        middle = (low + high) / 2 if low == 0 else math.sqrt(low * high)
        if getattr(plan(middle), measure) <= limit:
            low = middle
        else:
            high = middle
    return plan(low)


def _method_of(method: MethodOf, name: str, size: int) -> str:
    if isinstance(method, str):
        return method
    if isinstance(method, Mapping):
        if name not in method:
            raise ValueError(f"method must name every feature, but does not name {name!r}, got {shown(method)}.")
        return method[name]
    if not callable(method):
        raise TypeError(f"method must be a name, a dictionary by feature or a function, got {shown(method)}.")
    return method(name, size)


def _as_dict(table: TablePlan) -> dict[str, Any]:
    more = ("full_params", "codebook_nbytes", "nbytes", "compression", "byte_compression")
    return asdict(table) | {name: getattr(table, name) for name in more}


def _row(table: TablePlan) -> tuple[str, ...]:
    return (
        table.name,
        table.method,
        f"{table.num_embeddings:,}",
        f"{table.full_params:,}",
        f"{table.num_params:,}",
        format_bytes(table.codebook_nbytes),
        format_bytes(table.pointer_nbytes),
        format_ratio(table.compression),
        format_ratio(table.byte_compression),
    )
