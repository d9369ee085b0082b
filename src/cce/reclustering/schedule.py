"""When to cluster: called after every optimizer step, as learning-rate schedulers are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from tqdm import tqdm

from cce.checks import check_choice, check_range, check_type
from cce.collection import TableDict, feature_name, readable_path
from cce.distributed import Ranks, current_ranks
from cce.embeddings import Clusterable, ClusterEvent, check_plain_parameters, naming
from cce.reclustering.averages import paired_tables, restart_average
from cce.reclustering.repair import POLICIES
from cce.reclustering.sharing import cluster_tables


class ClusterSchedule:
    """Clusters all trained tables of `model` that can be, and repairs the optimizer, at the steps that it is given.

    optimizer: the one, or the several, that hold the parameters of the tables.
    every, times: every N steps, `times` times (default: without end).
    at_steps: the steps themselves, counted from 1.
    at_epochs, steps_per_epoch: numbers of epochs, which may be fractions: 0.5 is half an epoch.
    total, rest: with `times`, spread the clusterings evenly so that `rest` of `total` steps are left after the last.
    policy: what becomes of the optimizer's memory of the rows: see `repair_optimizer`.
    averages: averaged copies of the model (EMA, SWA), whose clustered tables restart: see `restart_average`.
    seed: of the clusterings' own random numbers, which do not disturb those of training.
    ranks: the processes that train this model together: each clusters some of the tables, and all get the results.
        By default those of torch's process group, if there is one; `Ranks()` is this process alone.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | Sequence[Optimizer] | None = None,
        *,
        every: int | None = None,
        times: int | None = None,
        at_steps: Sequence[int] | None = None,
        at_epochs: Sequence[float] | None = None,
        steps_per_epoch: int | None = None,
        total: int | None = None,
        rest: int = 0,
        policy: str = "transfer",
        averages: Sequence[nn.Module] = (),
        seed: int = 0,
        progress: bool = False,
        ranks: Ranks | None = None,
    ) -> None:
        check_choice("policy", policy, POLICIES)
        check_type("model", model, nn.Module, "a torch.nn.Module")
        self.model = model
        check_type("optimizer", optimizer, (Optimizer, list, tuple, type(None)), "a torch optimizer, or a list of them")
        several = optimizer if isinstance(optimizer, Sequence) else [optimizer]
        self.optimizers = tuple(each for each in several if each is not None)
        for each in self.optimizers:
            check_type("every optimizer", each, Optimizer, "a torch optimizer")
        self.every = every
        _check_ways(every=every, at_steps=at_steps, at_epochs=at_epochs, total=total, times=times, rest=rest)
        if at_epochs is not None:
            at_steps = _steps_of_epochs(at_epochs, steps_per_epoch)
        self.steps = _steps(every, times, at_steps, total, rest)
        self.policy = policy
        self.averages = tuple(averages)
        self.progress = progress
        check_range("seed", seed, 0, 2**64)
        self.generator = torch.Generator().manual_seed(seed)
        self._ranks = ranks
        self.num_steps = 0
        self.clustered: list[str] = []  # names of the tables of the last clustering, in the order of its events
        self._check_tables()

    @property
    def ranks(self) -> Ranks:
        """The processes that train this model, looked for when they are needed: a schedule may be made before them."""
        return self._ranks or current_ranks()

    def step(self) -> list[ClusterEvent]:
        """Count one optimizer step; cluster if it is time, and say what happened to each table."""
        events = self.cluster() if self.is_due(self.num_steps + 1) else []
        self.num_steps += 1  # after a failure the step has not been taken
        return events

    def is_due(self, step: int) -> bool:
        """Whether tables are clustered after step number `step`, counted from 1."""
        if self.steps is not None:
            return step in self.steps
        assert self.every is not None  # or there would be steps
        return step % self.every == 0

    @property
    def next_step(self) -> int | None:
        """The next step after which tables are clustered, or None."""
        if self.steps is not None:
            return min((step for step in self.steps if step > self.num_steps), default=None)
        assert self.every is not None
        return (self.num_steps // self.every + 1) * self.every

    def cluster(self) -> list[ClusterEvent]:
        """Cluster now, whatever the step: all tables, or none if one of them cannot be clustered."""
        named = self._named_tables()  # before: some tables can be clustered only once
        tables = {self._described(name): table for name, table in named}
        random_state = self.generator.get_state()
        try:
            events = self._cluster(tables)
        except BaseException:
            self.generator.set_state(random_state)
            raise
        self.clustered = [readable_path(name) for name, _ in named]
        for averaged in self.averages:
            restart_average(averaged, self.model)
        return events

    def _cluster(self, tables: dict[str, Clusterable]) -> list[ClusterEvent]:
        with tqdm(
            total=len(tables), desc="clustering", unit="table", leave=False, disable=None if self.progress else True
        ) as bar:
            return cluster_tables(
                tables,
                self.optimizers,
                policy=self.policy,
                generator=self.generator,
                ranks=self.ranks,
                done=bar.update,
            )

    def _described(self, name: str) -> str:
        """A table in words: its name in the model, and its feature if it belongs to a collection."""
        parent, _, key = name.rpartition(".")
        in_collection = isinstance(self.model.get_submodule(parent), TableDict)
        of_feature = f" of feature {feature_name(key)!r}" if in_collection else ""
        return f"table {readable_path(name)!r}{of_feature}" if name else "the table"

    def tables(self) -> list[Clusterable]:
        """The tables that are clustered: all of the model that can be, and are trained."""
        return [table for _, table in self._named_tables()]

    def _named_tables(self) -> list[tuple[str, Clusterable]]:
        return [
            (name, module)
            for name, module in self.model.named_modules()
            if isinstance(module, Clusterable) and module.can_cluster and _is_trained(module)
        ]

    def _check_tables(self) -> None:
        """Say now what would otherwise go wrong at the first clustering."""
        owned = {id(p) for o in self.optimizers for group in o.param_groups for p in group["params"]}
        for name, table in self._named_tables():
            with naming(self._described(name)):
                check_plain_parameters(table)
            if self.optimizers and not all(id(parameter) in owned for parameter in table.parameters()):
                raise ValueError(
                    "optimizer must hold the parameters of every clustered table, "
                    f"but does not hold those of {readable_path(name) or 'the model'}."
                )
            if table.settings.needs_counts:
                raise ValueError(
                    f"settings of a schedule must not need counts, which table.cluster(counts=…) takes, "
                    f"got {table.settings}."
                )
        for averaged in self.averages:
            paired_tables(averaged, self.model)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run must know."""
        return {"num_steps": self.num_steps, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        missing = {"num_steps", "generator"} - set(state)
        if missing:
            raise ValueError(f"state must be that of a ClusterSchedule, got none of {', '.join(sorted(missing))}.")
        self.num_steps = state["num_steps"]
        self.generator.set_state(state["generator"])


def _is_trained(table: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in table.parameters())


def _check_ways(*, times: int | None, rest: int, **ways: object) -> None:
    """When to cluster is given in one way."""
    given = [name for name, value in ways.items() if value is not None]
    if len(given) != 1:
        raise ValueError(f"give one of {', '.join(ways)}, got {' and '.join(given) or 'none'}.")
    if times is not None:
        check_range("times", times, 1, 2**31)
        if given[0].startswith("at_"):
            raise ValueError(f"times does not go with {given[0]}, which lists all clusterings, got times={times}.")
    if rest and given != ["total"]:
        raise ValueError(f"rest goes with total, got rest={rest} without it.")


def _steps(
    every: int | None, times: int | None, at_steps: Sequence[int] | None, total: int | None, rest: int
) -> frozenset[int] | None:
    """The steps to cluster after; None for every N steps without end."""
    if at_steps is not None:
        for step in at_steps:
            check_range("at_steps", step, 1, 2**63)
        return frozenset(int(step) for step in at_steps)
    if total is not None:
        return _spread(total, rest, times)
    assert every is not None
    check_range("every", every, 1, 2**63)
    return None if times is None else frozenset(every * (index + 1) for index in range(times))


def _spread(total: int, rest: int, times: int | None) -> frozenset[int]:
    check_range("total", total, 1, 2**63)
    check_range("rest", rest, 0, total)
    if times is None:
        raise ValueError("times must be given with total: how many clusterings to spread, got None.")
    check_range("times", times, 1, total - rest + 1)
    return frozenset(round((total - rest) * (index + 1) / times) for index in range(times))


def _steps_of_epochs(at_epochs: Sequence[float], steps_per_epoch: int | None) -> list[int]:
    """The steps at which these numbers of epochs are over."""
    if steps_per_epoch is None:
        raise ValueError(f"steps_per_epoch must be given with at_epochs, got at_epochs={list(at_epochs)} alone.")
    check_range("steps_per_epoch", steps_per_epoch, 1, 2**63)
    for epochs in at_epochs:
        if not 0 < epochs < math.inf:
            raise ValueError(f"at_epochs must hold numbers above 0, got {epochs}.")
    return [max(1, round(epochs * steps_per_epoch)) for epochs in at_epochs]
