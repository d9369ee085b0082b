"""When to cluster: called after every optimizer step, as learning-rate schedulers are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tqdm import tqdm

from cce.checks import check_choice, check_range
from cce.embeddings import Clusterable
from cce.training.averages import restart_average
from cce.training.optimizer_state import POLICIES, repair_optimizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn
    from torch.optim import Optimizer

    from cce.embeddings import ClusterEvent

PAPER_SCHEDULES = ("best-of-10-epochs", "one-epoch", "strategy-1", "strategy-2", "strategy-3")


def paper_schedule(name: str, times: int | None = None) -> list[float]:
    """The paper's schedules, in fractions of an epoch, for `ClusterSchedule(at=…)`.

    best-of-10-epochs: once an epoch, 6 times. one-epoch: after 1/4 and 1/2. strategy-1 and -2 (appendix): `times`
    clusterings, evenly spaced, the last after 1/2 or 2/3 of the epoch. strategy-3: evenly spaced over the epoch, with
    a rest as long as the interval after the last.
    """
    check_choice("name", name, PAPER_SCHEDULES)
    defaults = {"best-of-10-epochs": 6, "one-epoch": 2}
    times = defaults.get(name, 2) if times is None else times
    check_range("times", times, 1, 2**31)
    last = {"best-of-10-epochs": times, "one-epoch": 1 / 2, "strategy-1": 1 / 2, "strategy-2": 2 / 3}
    end = last.get(name, times / (times + 1))
    return [end * (index + 1) / times for index in range(times)]


class ClusterSchedule:
    """Clusters all tables of `model` that can be, and repairs the optimizer, at the steps that it is given.

    every, times: every so many steps, so many times (without `times`: for ever).
    at: the steps themselves; fractions (floats) are of an epoch, and need `steps_per_epoch`.
    total, rest: with `times`, spread the clusterings evenly so that `rest` of `total` steps are left after the last.
    policy: what becomes of the optimizer's memory of the rows: see `repair_optimizer`.
    averages: averaged copies of the model (EMA, SWA), whose clustered tables restart: see `restart_average`.
    seed: of the clusterings' own random numbers, which do not disturb those of training.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | None = None,
        *,
        every: int | None = None,
        times: int | None = None,
        at: Sequence[float] | None = None,
        steps_per_epoch: int | None = None,
        total: int | None = None,
        rest: int = 0,
        policy: str = "transfer",
        averages: Sequence[nn.Module] = (),
        seed: int = 0,
        progress: bool = False,
    ) -> None:
        check_choice("policy", policy, POLICIES)
        self.model = model
        self.optimizer = optimizer
        self.every = every
        self.times = times
        self.steps = _steps(every, times, at, steps_per_epoch, total, rest)
        self.policy = policy
        self.averages = tuple(averages)
        self.progress = progress
        self.generator = torch.Generator().manual_seed(seed)
        self.num_steps = 0

    def step(self) -> list[ClusterEvent]:
        """Count one optimizer step; cluster if it is time, and say what happened to each table."""
        self.num_steps += 1
        return self.cluster() if self.is_due(self.num_steps) else []

    def is_due(self, step: int) -> bool:
        """Whether tables are clustered after step number `step`, counted from 1."""
        if self.steps is not None:
            return step in self.steps
        assert self.every is not None  # or there would be steps
        return step % self.every == 0

    @property
    def next_step(self) -> int | None:
        """The next step after which tables are clustered; None if there is none."""
        if self.steps is not None:
            return min((step for step in self.steps if step > self.num_steps), default=None)
        assert self.every is not None
        return (self.num_steps // self.every + 1) * self.every

    def cluster(self) -> list[ClusterEvent]:
        """Cluster now, whatever the step."""
        tables = [module for module in self.model.modules() if isinstance(module, Clusterable) and module.can_cluster]
        events = []
        for table in tqdm(
            tables, desc="clustering", unit="table", leave=False, disable=None if self.progress else True
        ):
            event = table.cluster(generator=self.generator)
            if self.optimizer is not None:
                repair_optimizer(self.optimizer, event, policy=self.policy)
            events.append(event)
        for averaged in self.averages:
            restart_average(averaged, self.model)
        return events

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run must know."""
        return {"num_steps": self.num_steps, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self.num_steps = state["num_steps"]
        self.generator.set_state(state["generator"])


def _steps(
    every: int | None,
    times: int | None,
    at: Sequence[float] | None,
    steps_per_epoch: int | None,
    total: int | None,
    rest: int,
) -> frozenset[int] | None:
    """The steps to cluster after; None for every so many steps without end."""
    if sum(way is not None for way in (every, at, total)) != 1:
        raise ValueError(f"give one of every, at and total, got {every=}, {at=} and {total=}.")
    if times is not None:
        check_range("times", times, 1, 2**31)
    if at is not None:
        return frozenset(_step_number(moment, steps_per_epoch) for moment in at)
    if total is not None:
        return _spread(total, rest, times)
    assert every is not None
    check_range("every", every, 1, 2**63)
    return None if times is None else frozenset(every * (index + 1) for index in range(times))


def _spread(total: int, rest: int, times: int | None) -> frozenset[int]:
    check_range("total", total, 1, 2**63)
    check_range("rest", rest, 0, total)
    if times is None:
        raise ValueError("times must be given with total: how many clusterings to spread.")
    check_range("times", times, 1, total - rest + 1)
    return frozenset(round((total - rest) * (index + 1) / times) for index in range(times))


def _step_number(moment: float, steps_per_epoch: int | None) -> int:
    if isinstance(moment, int):
        check_range("at", moment, 1, 2**63)
        return moment
    if steps_per_epoch is None:
        raise ValueError(f"steps_per_epoch must be given when at holds fractions of an epoch, got at={moment}.")
    if not moment > 0:
        raise ValueError(f"at must hold moments above 0, got {moment}.")
    return max(1, round(moment * steps_per_epoch))
