"""Swap the large `nn.Embedding` and `nn.EmbeddingBag` of any model for compressed tables, in place."""

from __future__ import annotations

import fnmatch
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cce.budget import DEFAULT_METHOD, FULL, Budget, check_given, make_budget
from cce.checks import check_choice, check_flag, check_range, check_type, shown
from cce.collection import allocate_budget
from cce.embeddings import METHODS, Embedding, EmbeddingBag, Finalizable, TableRequest, check_shards, make_table
from cce.footprint import Footprint, Footprints
from cce.indexing import make_generator

Names = str | re.Pattern[str]
Start = Literal["random", "trained"]
LARGE = 20_000  # parameters from which a table is worth compressing


def compress(
    model: nn.Module,
    *,
    method: str = DEFAULT_METHOD,
    budget: Budget | None = None,
    cap: int | None = None,
    num_params: int | None = None,
    nbytes: int | None = None,
    compression: float | None = None,
    counts: Mapping[str, Tensor] | None = None,
    names: Names | Iterable[Names] | None = None,
    open: Names | Iterable[Names] | None = None,  # noqa: A002  # the word for tables of any ids
    min_params: int | None = None,
    start: Start = "random",
    seed: int | None = None,
    dry_run: bool = False,
    **options: Any,
) -> Footprints:
    """Swap tables of `model` in place, within a budget: see `Budget` for what `cap`, `compression`, … mean.

    The budget is of the tables that may be swapped; what is kept for another reason does not count. A table that fits
    in full is kept, too.

    counts: by name of a table, how often each id occurs in training, if it is known: ids that occur often enough have
        rows from the start. Otherwise ids earn their rows as they come.
    names: which tables: a name with wildcards ("*.user_embedding"), a compiled regular expression, or several.
    open: which of them take any 64-bit integers for ids, whatever their numbers of rows; written as `names` are.
    min_params: smaller tables are kept; by default 20,000, or 1 where names are given.
    start: "random", or "trained": as near to the present weights as the method can come.
    dry_run: only say what would be done.
    options: further arguments of the method's class, such as `start_scale`; `shard=True` of "cce" gives each rank of a
        process group a share of the rows.

    `padding_idx`, `sparse`, dtype, device and training mode are kept. Tables that share one weight share the new one.
    Make the optimizer after this call, not before.
    """
    check_type("model", model, nn.Module, "a torch.nn.Module")
    check_choice("method", method, METHODS)
    check_flag("dry_run", dry_run)
    check_choice("start", start, ("random", "trained"))
    if start == "trained" and "start_scale" in options:
        raise ValueError(f"start_scale goes with start='random', got {options['start_scale']!r} with start='trained'.")
    limit = make_budget(budget, cap, num_params, nbytes, compression)
    check_given(limit, method)
    min_params = (LARGE if names is None else 1) if min_params is None else min_params
    check_range("min_params", min_params, 0, 2**63)
    generator, patterns, opened = make_generator(seed), _patterns("names", names), _patterns("open", open)
    groups = _groups(model, list(patterns.values()), min_params, keeps_frozen=start == "random")
    known = [name for group in groups for name in group.modules]
    for argument, given in (("names", patterns), ("open", opened)):
        for written, pattern in given.items():
            if not any(pattern.search(name) for name in known):
                listed = ", ".join(known) or "none"
                raise ValueError(f"{argument} must match tables of the model ({listed}), got {written!r}.")
    groups = [replace(group, is_open=group.matches(opened.values())) for group in groups]
    swaps = _plan_swaps(groups, METHODS[method], options, limit)
    plan = Footprints(tuple(sorted((table for _, table in swaps), key=lambda table: table.name)))
    if dry_run:
        return plan
    if not plan.compressed:
        reasons = "; ".join(f"{table.name}: {table.reason}" for table in plan.tables)
        raise ValueError(f"model must have a table to swap, got {reasons or 'none'}.")
    tables = [(group, _make(group, table, options, start, generator)) for group, table in swaps if not table.reason]
    _give_rows(tables, counts or {})
    check_shards({table.rows.name: table.rows for _, table in tables if isinstance(table, Finalizable)})
    for group, table in tables:  # only now, when nothing can go wrong any more
        for name, module in group.modules.items():
            new: nn.Module = table
            if isinstance(module, nn.EmbeddingBag):
                mode: Any = module.mode
                new = EmbeddingBag(table, mode=mode, include_last_offset=module.include_last_offset)
            model.set_submodule(name, new.train(module.training))
    return plan


@dataclass(frozen=True)
class _Group:
    """All modules that share one weight, with the reason why they are kept, if they are."""

    modules: dict[str, nn.Embedding | nn.EmbeddingBag]
    reason: str
    is_open: bool = False  # whether the new table is to take any ids

    def matches(self, patterns: Iterable[re.Pattern[str]]) -> bool:
        """Whether a pattern is of one of its names."""
        return any(pattern.search(name) for name in self.modules for pattern in patterns)

    @property
    def name(self) -> str:
        """The name of the module, or of all modules that share the weight."""
        return " = ".join(self.modules) or "(model)"

    @property
    def first(self) -> nn.Embedding | nn.EmbeddingBag:
        """One of the modules, which agree in everything that matters."""
        return next(iter(self.modules.values()))


def _make(
    group: _Group, plan: Footprint, options: Mapping[str, Any], start: Start, generator: torch.Generator | None
) -> Embedding:
    """The new table of a group, of the same dtype and on the same device."""
    old = group.first
    placed = {"device": old.weight.device, "dtype": old.weight.dtype}
    common = {"padding_idx": old.padding_idx, "sparse": old.sparse, "generator": generator, **placed}
    table = make_table(plan, options, common)
    if start == "trained":
        try:
            table.fit_to(old.weight.detach(), generator=generator)
        except ValueError as error:
            raise ValueError(f"{group.name} cannot start as trained: {error}") from error
    return table if old.weight.requires_grad else table.requires_grad_(requires_grad=False)


def _give_rows(tables: Sequence[tuple[_Group, Embedding]], counts: Mapping[str, Tensor]) -> None:
    names = [group.name for group, _ in tables]
    for name in counts:
        check_choice("a name in counts", name, names)
    for group, table in tables:
        if isinstance(table, Finalizable):
            table.rows.name = f"table {group.name!r}"
            if group.name in counts:
                table.give_rows(counts[group.name])


def _plan_swaps(
    groups: Sequence[_Group],
    kind: type[Embedding],
    options: Mapping[str, Any],
    budget: Budget,
) -> list[tuple[_Group, Footprint]]:
    """The table of each group, or why it is kept: the budget, shared out among those that are not."""
    requests = {group.name: _request(group, kind, options) for group in groups if not group.reason}
    planned = dict(zip(requests, allocate_budget(list(requests.values()), budget), strict=True))
    swaps = []
    for group in groups:
        full = _request(replace(group, is_open=False), kind, options).full
        found = planned.get(group.name, full)
        kept = group.reason or (f"fits in full within {budget}" if found.method == FULL != kind.method else "")
        now = replace(full, method=f"nn.{type(group.first).__name__}", reason=kept)
        swaps.append((group, now if kept else found))
    return swaps


def _request(group: _Group, kind: type[Embedding], options: Mapping[str, Any]) -> TableRequest:
    old = group.first
    itemsize = old.weight.element_size()
    return TableRequest(
        kind,
        None if group.is_open else old.num_embeddings,
        old.embedding_dim,
        options,
        name=group.name,
        itemsize=itemsize,
    )


def _groups(
    model: nn.Module, patterns: Sequence[re.Pattern[str]], min_params: int, *, keeps_frozen: bool
) -> list[_Group]:
    """Every table of the model, tied ones together, each with a reason if it must be kept."""
    owners: dict[int, dict[str, nn.Module]] = defaultdict(dict)  # who holds each weight, tables or not
    for path, parameter in model.named_parameters(remove_duplicate=False):
        owner = path.rpartition(".")[0]
        owners[id(parameter)][owner] = model.get_submodule(owner)
    groups = []
    for holders in owners.values():
        tables = {n: m for n, m in holders.items() if isinstance(m, nn.Embedding | nn.EmbeddingBag)}
        if tables:
            groups.append(
                _Group(tables, _keep_reason(tables, holders, patterns, min_params, keeps_frozen=keeps_frozen))
            )
    return groups


def _keep_reason(
    tables: dict[str, nn.Embedding | nn.EmbeddingBag],
    holders: dict[str, nn.Module],
    patterns: Sequence[re.Pattern[str]],
    min_params: int,
    *,
    keeps_frozen: bool,
) -> str:
    """Why tables that share a weight are kept; "" if they are not."""
    others = [f"{name} ({type(module).__name__})" for name, module in holders.items() if name not in tables]
    first = next(iter(tables.values()))
    if patterns and not any(pattern.search(name) for name in tables for pattern in patterns):
        return "not named"
    if first.weight.numel() < min_params:
        return f"smaller than min_params={min_params:,}"
    if others:
        return f"its weight is tied to {', '.join(others)}"
    if len({(table.padding_idx, table.sparse) for table in tables.values()}) > 1:
        return "tied tables differ in padding_idx or sparse"
    for name, table in tables.items():
        hooks = (table._forward_hooks, table._forward_pre_hooks, table._backward_hooks, table._backward_pre_hooks)
        kind = type(table)
        reasons = {
            f"{kind.__name__} is a subclass and may do more than look up": kind not in (nn.Embedding, nn.EmbeddingBag),
            "the model is itself this table: use cce.create_embedding": not name,
            "max_norm is not supported": table.max_norm is not None,
            "scale_grad_by_freq is not supported": table.scale_grad_by_freq,
            "it has hooks, which would be lost": any(hooks),
            "it is frozen: compress it with start='trained'": keeps_frozen and not first.weight.requires_grad,
        }
        found = next((reason for reason, is_one in reasons.items() if is_one), "")
        if found:
            return found
    return ""


def _patterns(argument: str, names: Names | Iterable[Names] | None) -> dict[str, re.Pattern[str]]:
    """Regular expressions, by what was written."""
    if names is None:
        return {}
    several = list(names) if isinstance(names, Iterable) and not isinstance(names, str) else [names]
    if not all(isinstance(each, str | re.Pattern) for each in several):
        raise TypeError(
            f"{argument} must be a str, a compiled regular expression or a list of these, got {shown(names)}."
        )
    translated = {name: re.compile(r"\A" + fnmatch.translate(name)) for name in several if isinstance(name, str)}
    return translated | {name.pattern: name for name in several if isinstance(name, re.Pattern)}
