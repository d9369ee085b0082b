"""A clustering shared out over processes: each clusters some of the tables, and all take over the results.

What is sent of a table is its state, and the optimizers' state of its rows, which its owner has repaired already. All
processes draw the same random numbers for a table, whichever clusters it, so the result does not depend on how
many they are; at the end their tables are compared to the bit. No table changes before every process has
computed its share: all tables are clustered or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cce.distributed import Ranks, broadcast, check_same, partition_work
from cce.embeddings import Clusterable, ClusterEvent, StagedClustering, stage_all
from cce.reclustering.repair import repair_optimizer
from cce.signals import uninterrupted

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.optim import Optimizer


def cluster_tables(
    tables: Mapping[str, Clusterable],
    optimizers: Sequence[Optimizer],
    *,
    policy: str,
    generator: torch.Generator,
    ranks: Ranks,
    done: Callable[[], object],
) -> list[ClusterEvent]:
    """Cluster all tables on all ranks, and repair the optimizers; if one table cannot be clustered, none is.

    The keys of the tables say in an error which it was.
    """
    if not tables:
        return []
    shares = partition_work([table.num_embeddings for table in tables.values()], ranks.world_size)
    owners = dict(zip(tables, shares, strict=True))
    staged = _stage_share(tables, owners, generator, ranks, done)
    with uninterrupted():
        for each in staged.values():
            each.apply()
            for optimizer in optimizers:
                repair_optimizer(optimizer, each.event, policy=policy)
    events = {name: each.event for name, each in staged.items()}
    found = [_take_over(table, optimizers, events.get(name), ranks, owners[name]) for name, table in tables.items()]
    if ranks.world_size > 1:
        check_same({f"{name} of {key}": t for key, table in tables.items() for name, t in table.state_dict().items()})
    return found


def _stage_share(
    tables: Mapping[str, Clusterable],
    owners: Mapping[str, int],
    generator: torch.Generator,
    ranks: Ranks,
    done: Callable[[], object],
) -> dict[str, StagedClustering]:
    """The clusterings of this rank's tables; an error on any rank is raised on all, before any table has changed."""
    staged: dict[str, StagedClustering] = {}
    error: Exception | None = None
    try:
        staged = stage_all(tables, generator, is_mine=lambda name: owners[name] == ranks.rank, done=done)
    except Exception as found:  # noqa: BLE001  the other ranks wait to hear of it
        error = found
    messages = [broadcast("" if error is None else str(error), ranks, source=rank) for rank in range(ranks.world_size)]
    if error is not None:
        raise error
    for rank, message in enumerate(messages):
        if message:
            raise RuntimeError(f"{message} (on rank {rank})")
    return staged


def _take_over(
    table: Clusterable, optimizers: Sequence[Optimizer], event: ClusterEvent | None, ranks: Ranks, owner: int
) -> ClusterEvent:
    """The event of a table, which is here what it is at its owner."""
    sent = None if event is None else (_plain(event), table.state_dict(), _optimizer_state(table, optimizers))
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


def _plain(event: ClusterEvent) -> dict[str, Any]:
    values = dict(vars(replace(event, transfer=None, replaced={})))
    return {name: value for name, value in values.items() if name not in ("transfer", "replaced")}


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
                key: value.to(parameter.device) if _lies_beside(value, parameter) else value
                for key, value in of_names[name].items()
            }


def _lies_beside(value: object, parameter: Tensor) -> bool:
    """State with rows lies where the parameter does; step counters may stay on the CPU."""
    return hasattr(value, "dim") and value.dim() > 0 and parameter.device.type != "cpu"
