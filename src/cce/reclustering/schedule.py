"""When to cluster, called after every optimizer step, as learning-rate schedulers are; and the clustering itself.

Processes share it out: each clusters some of the tables, and all take over the results. No table changes before every
process has computed its share: all tables are clustered or none.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cce.checks import check_choice, check_range, check_type
from cce.collection import TableDict, feature_name, readable_path
from cce.distributed import Ranks, broadcast, check_same, current_ranks, partition_work
from cce.embeddings import Clusterable, ClusterEvent, StagedClustering, check_plain_parameters, naming, stage_all
from cce.reclustering.repair import POLICIES, paired_tables, repair_optimizer, restart_average
from cce.signals import uninterrupted


class ClusterSchedule:
    """Clusters all trained tables of `model` that can be, and repairs the optimizer, at the steps that it is given.

    optimizer: the one, or the several, that hold the parameters of the tables.
    every, times: every N steps, `times` times (default: without end).
    at_steps: the steps themselves, counted from 1.
    at_epochs, steps_per_epoch: numbers of epochs, which may be fractions: 0.5 is half an epoch.
    policy: what becomes of the optimizer's memory of the rows: see `repair_optimizer`.
    averages: averaged copies of the model (EMA, SWA), whose clustered tables restart: see `restart_average`.
    seed: of the clusterings' own random numbers, which do not disturb those of training.

    The processes of torch's process group, if there is one, train this model together: each clusters some of the
    tables, and all get the results.
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
        policy: str = "transfer",
        averages: Sequence[nn.Module] = (),
        seed: int = 0,
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
        self.steps = _steps(times, steps_per_epoch, every=every, at_steps=at_steps, at_epochs=at_epochs)
        self.policy = policy
        self.averages = tuple(averages)
        check_range("seed", seed, 0, 2**64)
        self.generator = torch.Generator().manual_seed(seed)
        self.num_steps = 0
        self.clustered: list[str] = []  # names of the tables of the last clustering, in the order of its events
        self._check_tables()

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
            events = cluster_tables(
                tables, self.optimizers, policy=self.policy, generator=self.generator, ranks=current_ranks()
            )
        except BaseException:
            self.generator.set_state(random_state)
            raise
        self.clustered = [readable_path(name) for name, _ in named]
        for averaged in self.averages:
            restart_average(averaged, self.model)
        return events

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
            if table.settings.weighted:
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


def _steps(times: int | None, steps_per_epoch: int | None, **ways: Any) -> frozenset[int] | None:
    """The steps to cluster after, which are given in one of these ways; None for every N steps without end."""
    given = [name for name, value in ways.items() if value is not None]
    if len(given) != 1:
        raise ValueError(f"give one of {', '.join(ways)}, got {' and '.join(given) or 'none'}.")
    (name,) = given
    if times is not None:
        check_range("times", times, 1, 2**31)
        if name != "every":
            raise ValueError(f"times does not go with {name}, which lists all clusterings, got times={times}.")
    if name == "every":
        check_range(name, ways[name], 1, 2**63)
        return None if times is None else frozenset(ways[name] * (index + 1) for index in range(times))
    if name == "at_steps":
        for step in ways[name]:
            check_range(name, step, 1, 2**63)
        return frozenset(int(step) for step in ways[name])
    if steps_per_epoch is None:
        raise ValueError(f"steps_per_epoch must be given with at_epochs, got at_epochs={list(ways[name])} alone.")
    check_range("steps_per_epoch", steps_per_epoch, 1, 2**63)
    for epochs in ways[name]:
        if not 0 < epochs < math.inf:
            raise ValueError(f"at_epochs must hold numbers above 0, got {epochs}.")
    return frozenset(max(1, round(epochs * steps_per_epoch)) for epochs in ways[name])


# -- shares of processes -----------------------------------------------------------------------------------------------


def cluster_tables(
    tables: Mapping[str, Clusterable],
    optimizers: Sequence[Optimizer],
    *,
    policy: str,
    generator: torch.Generator,
    ranks: Ranks,
) -> list[ClusterEvent]:
    """Cluster all tables on all ranks, and repair the optimizers; if one table cannot be clustered, none is.

    What is sent of a table is its state, and the optimizers' state of its rows, which its owner has repaired already.
    All ranks draw the same random numbers for a table, whichever clusters it, so the result does not depend on how many
    they are; at the end their tables are compared to the bit. The keys of the tables say in an error which it was.
    """
    if not tables:
        return []
    shares = partition_work([table.num_embeddings for table in tables.values()], ranks.world_size)
    owners = dict(zip(tables, shares, strict=True))
    staged = _stage_share(tables, owners, generator, ranks)
    with uninterrupted():
        for each in staged.values():
            each.apply()
            for optimizer in optimizers:
                repair_optimizer(optimizer, each.event, policy=policy)
    events = {name: each.event for name, each in staged.items()}
    found = [_swap_in(table, optimizers, events.get(name), ranks, owners[name]) for name, table in tables.items()]
    if ranks.world_size > 1:
        check_same({f"{name} of {key}": t for key, table in tables.items() for name, t in table.state_dict().items()})
    return found


def _stage_share(
    tables: Mapping[str, Clusterable],
    owners: Mapping[str, int],
    generator: torch.Generator,
    ranks: Ranks,
) -> dict[str, StagedClustering]:
    """The clusterings of this rank's tables; an error on any rank is raised on all, before any table has changed."""
    staged: dict[str, StagedClustering] = {}
    error: Exception | None = None
    try:
        staged = stage_all(tables, generator, is_mine=lambda name: owners[name] == ranks.rank)
    except Exception as found:  # noqa: BLE001  the other ranks wait to hear of it
        error = found
    messages = [broadcast("" if error is None else str(error), ranks, source=rank) for rank in range(ranks.world_size)]
    if error is not None:
        raise error
    for rank, message in enumerate(messages):
        if message:
            raise RuntimeError(f"{message} (on rank {rank})")
    return staged


def _swap_in(
    table: Clusterable, optimizers: Sequence[Optimizer], event: ClusterEvent | None, ranks: Ranks, owner: int
) -> ClusterEvent:
    """The event of a table, which is here what it is at its owner."""
    sent = None
    if event is not None:
        plain = {name: value for name, value in vars(event).items() if name not in ("transfer", "replaced")}
        sent = (plain, table.state_dict(), _optimizer_state(table, optimizers))
    values, state, optimizer_state = broadcast(sent, ranks, source=owner)
    if event is not None:
        return event
    before = dict(table.named_parameters())
    table.load_state_dict(state)
    after = dict(table.named_parameters())
    replaced = {old: after.get(name) for name, old in before.items() if after.get(name) is not old}
    for parameter in after.values():
        parameter.grad = None  # it belonged to the old rows
    event = ClusterEvent(**values, replaced=replaced)
    for optimizer, of_names in zip(optimizers, optimizer_state, strict=True):
        repair_optimizer(optimizer, event, policy="keep")  # exchanges the parameters that were replaced
        _load_optimizer_state(optimizer, after, of_names)
    return event


def _optimizer_state(table: nn.Module, optimizers: Sequence[Optimizer]) -> list[dict[str, Any]]:
    """The state of each parameter, by optimizer."""
    named = list(table.named_parameters())
    return [{name: dict(optimizer.state[p]) for name, p in named if p in optimizer.state} for optimizer in optimizers]


def _load_optimizer_state(
    optimizer: Optimizer, parameters: dict[str, nn.Parameter], of_names: dict[str, dict[str, Any]]
) -> None:
    for name, parameter in parameters.items():
        optimizer.state.pop(parameter, None)
        if name in of_names:
            optimizer.state[parameter] = {
                key: value.to(parameter.device) if isinstance(value, Tensor) and value.dim() else value
                for key, value in of_names[name].items()
            }  # step counters may stay on the CPU
