"""How a budget is shared out among features: which table each gets, and what it holds. Nothing is allocated here."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cce.budget import DEFAULT_METHOD, SIZED_LATER, Budget, check_given, make_budget
from cce.checks import check_choice, check_range, check_type, shown
from cce.embeddings import MAX_IDS, METHODS, TableRequest
from cce.footprint import Footprint, Footprints

MAX_HALVINGS = 200  # of the range in which the scale of a budget is searched
BYTE_PRECISION = 1e-4  # of the scale of a budget in bytes, which takes longer to try

NO_BUDGET = "no budget was given"  # why a table is kept in full

MethodOf = str | Mapping[str, str] | Callable[[str, Any], str]  # one name, names by feature, or a rule (name, ids)


def plan_tables(
    vocabularies: Mapping[str, int | None],
    embedding_dim: int,
    *,
    method: MethodOf = DEFAULT_METHOD,
    budget: Budget | None = None,
    cap: int | None = None,
    num_params: int | None = None,
    nbytes: int | None = None,
    compression: float | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    itemsize: int = 4,
) -> Footprints:
    """A table for every feature, within one budget: see `Budget` for what `cap`, `num_params`, … mean.

    method: of the tables that do not fit in full: one for all, by feature, or a function of name and vocabulary.
    options: further arguments of a method's class, by method.
    itemsize: bytes of a parameter.

    A feature whose full table fits in its share keeps its full table. A budget below the smallest tables is rejected.
    Without a budget all tables are full, or as large, and the plan, when printed, says why.
    """
    check_vocabularies("vocabularies", vocabularies)
    check_range("embedding_dim", embedding_dim, 1, MAX_IDS)
    limit = make_budget(budget, cap, num_params, nbytes, compression)
    check_type("options", options, (Mapping, type(None)), "a dictionary by name")
    for name in options or {}:
        check_choice("a name in options", name, METHODS)
    requests = []
    for name, size in vocabularies.items():
        kind = METHODS[_method_of(method, name, size)]
        own = (options or {}).get(kind.method, {})
        check_type(f"options of {kind.method!r}", own, Mapping, "a dictionary of arguments")
        requests.append(TableRequest(kind, size, embedding_dim, own, name=name, itemsize=itemsize))
    return Footprints(tuple(allocate_budget(requests, limit)))


def allocate_budget(requests: Sequence[TableRequest], budget: Budget) -> list[Footprint]:
    """The tables of a budget, one for each request."""
    for each in requests:
        if each.num_embeddings is None:
            check_given(budget, each.kind.method)
            budget.check_compression()
    if budget.is_full:
        return [
            each.largest if each.largest.method == each.kind.method else replace(each.largest, reason=NO_BUDGET)
            for each in requests
        ]
    if budget.cap is not None:  # the table that needs the largest cap says so
        max(requests, key=lambda request: request.least(budget)).for_budget(budget)
    if len(requests) < 2 or budget.cap is not None:
        return [request.for_budget(budget) for request in requests]
    limit = budget.total(sum(request.full.num_params for request in requests))
    measure = "nbytes" if budget.nbytes else "num_params"
    has_pointers = any(request.kind.method in SIZED_LATER for request in requests)
    return _largest_within(requests, limit, measure, "num_params" if has_pointers else measure)


def check_vocabularies(argument: str, vocabularies: Mapping[str, int | None]) -> None:
    """Reject anything but names of features with their vocabulary sizes."""
    example = "{'user': 6_000_000, 'item': 800_000}"
    check_type(argument, vocabularies, Mapping, f"a dictionary of names and vocabulary sizes such as {example}")
    if not vocabularies:
        raise ValueError(f"{argument} must name at least one feature, got none.")
    for name, num_ids in vocabularies.items():
        check_type(f"a name in {argument}", name, str, "a str")
        if num_ids is not None:  # any ids
            check_range(f"{argument}: the number of ids of {name!r}", num_ids, 1, MAX_IDS)


def _largest_within(requests: Sequence[TableRequest], limit: int, measure: str, shared: str) -> list[Footprint]:
    """The tables of the largest cap that stays within the limit of the measure.

    The cap may be on another measure: where it is given which ids have pointers, bytes are best spent by a cap
    on parameters. A cap on bytes would let a table of few ids be full for as much as the pointers of a large one take.
    """

    def tables(cap: float) -> list[Footprint]:
        return [request.within(cap, shared) for request in requests]

    def size(cap: float) -> int:
        return sum(getattr(table, measure) for table in tables(cap))

    if size(0.0) > limit:
        raise ValueError(f"{measure} must be at least {size(0.0)}, the smallest tables together, got {limit}.")
    # an open table of its largest size has no bound, and holds nothing yet: one a parameter smaller has
    high = float(max(getattr(request.ample, shared) - (request.num_embeddings is None) for request in requests))
    low = high if size(high) <= limit else 0.0
    precision = BYTE_PRECISION if shared == "nbytes" else 0.0
    for _ in range(MAX_HALVINGS):
        if high - low <= low * precision or int(low) == int(high):
            break
        middle = (low + high) / 2 if low == 0 else math.sqrt(low * high)
        if size(middle) <= limit:
            low = middle
        else:
            high = middle
    return tables(low) if shared == measure else _fill(requests, tables(low), low, limit)


def _fill(requests: Sequence[TableRequest], tables: list[Footprint], cap: float, limit: int) -> list[Footprint]:
    """The tables of a cap on parameters, some with a larger one: what is left of a limit in bytes is spent.

    Pointers to one row more may take twice the bits, for which there may be room in some tables. Small ones come first.
    """
    room = limit - sum(table.nbytes for table in tables)
    order = sorted(range(len(tables)), key=lambda index: requests[index].full.num_params)
    while cap < max(request.full.num_params for request in requests):
        cap = max(2 * cap, 1.0)
        for index in order:
            larger = requests[index].within(cap)
            if 0 < larger.nbytes - tables[index].nbytes <= room and larger.num_params <= cap:
                room -= larger.nbytes - tables[index].nbytes
                tables[index] = larger
    return tables


def _method_of(method: MethodOf, name: str, size: int | None) -> str:
    if isinstance(method, Mapping):
        if name not in method:
            got = shown(dict(method))
            raise ValueError(f"method must name every feature, but does not name {name!r}, got {got}.")
        chosen: object = method[name]
    elif callable(method):
        chosen = method(name, size)
    else:
        check_type("method", method, str, "a name, a dictionary by feature or a function")
        chosen = method
    check_choice("method", chosen, METHODS)
    return str(chosen)
