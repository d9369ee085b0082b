"""Swap the large `nn.Embedding` and `nn.EmbeddingBag` of any model for compressed tables, in place."""

from __future__ import annotations

import fnmatch
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from cce.checks import check_choice, check_flag, check_number, check_range, check_type, shown
from cce.embeddings import METHODS, Embedding, EmbeddingBag, create_embedding
from cce.indexing import make_generator
from cce.text import format_bytes, format_ratio, format_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

Names = str | re.Pattern[str]
Start = Literal["random", "trained"]
LARGE = 100_000  # numbers from which a table is worth compressing
HEADERS = ("table", "becomes", "ids", "dim", "params", "of", "fewer params", "bytes", "why kept")


@dataclass(frozen=True)
class PlannedTable:
    """What happens to one table: it becomes one of another method, or is kept for a reason."""

    name: str
    method: str | None  # None: kept
    num_embeddings: int
    embedding_dim: int
    num_params: int
    nbytes: int
    reason: str = ""

    @property
    def full_params(self) -> int:
        """Trainable numbers before."""
        return self.num_embeddings * self.embedding_dim


@dataclass(frozen=True)
class CompressionPlan:
    """What `compress` did, or with `dry_run` would do, to every table of a model."""

    tables: tuple[PlannedTable, ...]

    @property
    def compressed(self) -> tuple[PlannedTable, ...]:
        """The tables that are swapped."""
        return tuple(table for table in self.tables if table.method is not None)

    def __str__(self) -> str:
        return format_table(HEADERS, [_row(table) for table in self.tables], num_left=2)


def compress(
    model: nn.Module,
    *,
    method: str = "cce",
    compression: float | None = None,
    cap: int | None = None,
    names: Names | Iterable[Names] | None = None,
    min_params: int | None = None,
    start: Start = "random",
    seed: int | None = None,
    dry_run: bool = False,
    **options: Any,
) -> CompressionPlan:
    """Swap tables of `model` in place: each `compression` times smaller, or of at most `cap` trainable numbers.

    names: which tables: a name with wildcards ("*.user_embedding"), a compiled regular expression, or several.
    min_params: smaller tables are kept; by default 100,000, or 1 where names are given.
    start: "random", or "trained": as near to the present weights as the method can come.
    dry_run: only say what would be done.
    options: further arguments of the method's class.

    `padding_idx`, `sparse`, dtype, device and training mode are kept. Tables that share one weight share the new one.
    Make the optimizer after this call, not before.
    """
    check_type("model", model, nn.Module, "a torch.nn.Module")
    check_choice("method", method, METHODS)
    check_flag("dry_run", dry_run)
    check_choice("start", start, ("random", "trained"))
    if (compression is None) == (cap is None):
        raise ValueError(f"give one of compression and cap, got {compression=} and {cap=}.")
    if cap is not None:
        check_range("cap", cap, 1, 2**63)
    if compression is not None:
        check_number("compression", compression, 1)
    min_params = (LARGE if names is None else 1) if min_params is None else min_params
    check_range("min_params", min_params, 0, 2**63)
    request = _Request(method, compression, cap, start, make_generator(seed), options)
    patterns = _patterns(names)
    groups = _groups(model, list(patterns.values()), min_params)
    _check_matches(patterns, [name for group in groups for name in group.modules])
    swaps = [_Swap(group, _new_table(group, request, dry_run=dry_run)) for group in groups]
    plan = CompressionPlan(tuple(sorted((t for swap in swaps for t in swap.planned()), key=lambda table: table.name)))
    if dry_run:
        return plan
    if not plan.compressed:
        reasons = "; ".join(f"{table.name}: {table.reason}" for table in plan.tables)
        raise ValueError(f"model must have a table to swap, got {reasons or 'none'}.")
    for swap in swaps:  # only now, when nothing can go wrong any more
        swap.apply(model)
    return plan


@dataclass(frozen=True)
class _Request:
    """What the new tables should be."""

    method: str
    compression: float | None
    cap: int | None
    start: Start
    generator: torch.Generator | None
    options: dict[str, Any]

    def table_for(self, old: nn.Embedding | nn.EmbeddingBag) -> Embedding:
        """A new table in the place of `old`, of the same dtype and on the same device."""
        return create_embedding(
            self.method,
            old.num_embeddings,
            old.embedding_dim,
            num_params=self.cap,
            compression=self.compression,
            generator=self.generator,
            padding_idx=old.padding_idx,
            sparse=old.sparse,
            device=old.weight.device,
            dtype=old.weight.dtype,
            **self.options,
        )


@dataclass(frozen=True)
class _Group:
    """All modules that share one weight, with the reason why they are kept, if they are."""

    modules: dict[str, nn.Embedding | nn.EmbeddingBag]
    reason: str

    @property
    def first(self) -> nn.Embedding | nn.EmbeddingBag:
        """One of them: they agree in all that matters."""
        return next(iter(self.modules.values()))


@dataclass(frozen=True)
class _Swap:
    """A group and what takes its place: a table, or a reason why nothing does."""

    group: _Group
    table: Embedding | str

    def planned(self) -> list[PlannedTable]:
        return [_planned(name, self.group.first, self.table) for name in self.group.modules]

    def apply(self, model: nn.Module) -> None:
        if isinstance(self.table, Embedding):
            for name, module in self.group.modules.items():
                model.set_submodule(name, _wrap(self.table, module).train(module.training))


def _new_table(group: _Group, request: _Request, *, dry_run: bool) -> Embedding | str:
    old = group.first
    reason = group.reason or _budget_reason(old, request) or _frozen_reason(old, request)
    if reason:
        return reason
    table = request.table_for(old)
    if request.start == "trained" and not dry_run:
        table.approximate(old.weight.detach(), generator=request.generator)
    return table.requires_grad_(old.weight.requires_grad)


def _wrap(table: Embedding, old: nn.Embedding | nn.EmbeddingBag) -> nn.Module:
    if isinstance(old, nn.Embedding):
        return table
    mode: Any = old.mode
    return EmbeddingBag(table, mode=mode, include_last_offset=old.include_last_offset)


def _groups(model: nn.Module, patterns: Sequence[re.Pattern[str]], min_params: int) -> list[_Group]:
    """Every table of the model, tied ones together, each with a reason if it must be kept."""
    owners: dict[int, dict[str, nn.Module]] = defaultdict(dict)  # who holds each weight, tables or not
    for path, parameter in model.named_parameters(remove_duplicate=False):
        owner = path.rpartition(".")[0]
        owners[id(parameter)][owner] = model.get_submodule(owner)
    groups = []
    for holders in owners.values():
        tables = {n: m for n, m in holders.items() if isinstance(m, nn.Embedding | nn.EmbeddingBag)}
        if tables:
            groups.append(_Group(tables, _keep_reason(tables, holders, patterns, min_params)))
    return groups


def _keep_reason(
    tables: dict[str, nn.Embedding | nn.EmbeddingBag],
    holders: dict[str, nn.Module],
    patterns: Sequence[re.Pattern[str]],
    min_params: int,
) -> str:
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
    return next((reason for name, table in tables.items() if (reason := _own_reason(name, table))), "")


def _own_reason(name: str, table: nn.Embedding | nn.EmbeddingBag) -> str:
    if type(table) not in (nn.Embedding, nn.EmbeddingBag):
        return f"{type(table).__name__} is a subclass and may do more than look up"
    if not name:
        return "the model is itself this table: use cce.create_embedding"
    if table.max_norm is not None:
        return "max_norm is not supported"
    if table.scale_grad_by_freq:
        return "scale_grad_by_freq is not supported"
    hooks = (table._forward_hooks, table._forward_pre_hooks, table._backward_hooks, table._backward_pre_hooks)
    return "it has hooks, which would be lost" if any(hooks) else ""


def _budget_reason(old: nn.Embedding | nn.EmbeddingBag, request: _Request) -> str:
    fits = request.cap is not None and old.weight.numel() <= request.cap
    return f"fits under cap={request.cap:,}" if fits else ""


def _frozen_reason(old: nn.Embedding | nn.EmbeddingBag, request: _Request) -> str:
    lost = not old.weight.requires_grad and request.start == "random"
    return "it is frozen: compress it with start='trained'" if lost else ""


def _check_matches(patterns: Mapping[str, re.Pattern[str]], tables: Sequence[str]) -> None:
    for written, pattern in patterns.items():
        if not any(pattern.search(name) for name in tables):
            known = ", ".join(tables) or "none"
            raise ValueError(f"names must match tables of the model ({known}), got {written!r}.")


def _patterns(names: Names | Iterable[Names] | None) -> dict[str, re.Pattern[str]]:
    """Regular expressions, by what was written."""
    if names is None:
        return {}
    several = list(names) if isinstance(names, Iterable) and not isinstance(names, str) else [names]
    if not all(isinstance(each, str | re.Pattern) for each in several):
        raise TypeError(f"names must be a str, a compiled regular expression or a list of these, got {shown(names)}.")
    translated = {name: re.compile(r"\A" + fnmatch.translate(name)) for name in several if isinstance(name, str)}
    return translated | {name.pattern: name for name in several if isinstance(name, re.Pattern)}


def _planned(name: str, old: nn.Embedding | nn.EmbeddingBag, new: Embedding | str) -> PlannedTable:
    method, num_params, nbytes, reason = (
        (None, old.weight.numel(), old.weight.nbytes, new)
        if isinstance(new, str)
        else (new.method, new.num_params, new.nbytes, "")
    )
    return PlannedTable(
        name=name or "(model)",
        method=method,
        num_embeddings=old.num_embeddings,
        embedding_dim=old.embedding_dim,
        num_params=num_params,
        nbytes=nbytes,
        reason=reason,
    )


def _row(table: PlannedTable) -> tuple[str, ...]:
    return (
        table.name,
        table.method or "(kept)",
        f"{table.num_embeddings:,}",
        str(table.embedding_dim),
        f"{table.num_params:,}",
        f"{table.full_params:,}",
        format_ratio(table.full_params / table.num_params),
        format_bytes(table.nbytes),
        table.reason,
    )
