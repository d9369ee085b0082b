"""The processes that train one model together, those of torch's default process group, and the model that they call."""

import gc
import inspect
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from cce.schema import Batch

PATIENCE = timedelta(minutes=30)  # a clustering or a checkpoint of one process may keep the others waiting
_names = inspect.signature(DistributedDataParallel).parameters
# buffers are not sent at every forward; torch 2.13 has another name for it
NO_BUFFERS = {"forward_sync_buffers" if "forward_sync_buffers" in _names else "broadcast_buffers": False}


@dataclass(frozen=True)
class Ranks:
    """This process among all: `rank` of `world_size`. `Ranks()` is a process alone; `current_ranks()` finds them."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0  # among those of this machine

    @property
    def is_main(self) -> bool:
        """Whether this process writes, prints and decides."""
        return self.rank == 0

    def device(self, name: str) -> torch.device:
        """The device of this process: `cpu`, `cuda`, or `auto`, the CPU, as nothing here has run on a GPU yet."""
        if name == "auto":
            name = "cpu"
            if torch.cuda.is_available():
                warnings.warn("device 'auto' is the CPU: nothing has run on a GPU yet. 'cuda' tries it.", stacklevel=3)
        try:
            device = torch.device("cuda", self.local_rank) if name == "cuda" else torch.device(name)
            if device.type != "cpu":
                torch.empty(1, device=device).cpu()  # torch knows names of devices that are not here
        except (AssertionError, NotImplementedError, RuntimeError) as error:
            here = f"cpu, cuda ({torch.cuda.device_count()} here) or auto"
            raise ValueError(f"device must be one of this machine's, {here}, got {name!r}.") from error
        return device


def current_ranks() -> Ranks:
    """The processes of the default group where `torch.distributed` is initialised, else this one alone."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return Ranks()
    return Ranks(distributed.get_rank(), distributed.get_world_size(), int(os.environ.get("LOCAL_RANK", "0")))


@contextmanager
def init_distributed() -> Iterator[Ranks]:
    """Join the processes that `torchrun` started, and leave them at the end; alone where it did not."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Ranks()
        return
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"  # pointers lie on the CPU at all times
    distributed.init_process_group(backend, timeout=PATIENCE)
    try:
        yield current_ranks()
    finally:
        gc.collect()  # a data-parallel model that outlives its group may abort the process
        distributed.destroy_process_group()


def partition_work(weights: Sequence[float], world_size: int) -> list[int]:
    """The rank that does each piece of a work that all need the result of.

    The heaviest first, each to the rank with the least to do so far.
    """
    loads = [0.0] * world_size
    owners = [0] * len(weights)
    for index in sorted(range(len(weights)), key=lambda index: -weights[index]):
        owners[index] = min(range(world_size), key=loads.__getitem__)
        loads[owners[index]] += weights[index]
    return owners


class ParallelModel:
    """Calls `model`; with several ranks, its gradients become the mean of those of all ranks."""

    def __init__(self, model: nn.Module, ranks: Ranks) -> None:
        self.model, self.ranks = model, ranks
        self._wrapped: DistributedDataParallel | None = None
        self._known: list[tuple[int, Any]] = []
        self.refresh()

    def __call__(self, batch: Batch) -> Tensor:
        """Logits."""
        return (self._wrapped or self.model)(batch)  # type: ignore[no-any-return]

    def refresh(self) -> None:
        """Wrap the model again if a clustering replaced or resized a parameter: gradients are reduced by position."""
        now = [(id(parameter), parameter.shape) for parameter in self.model.parameters()]
        if self.ranks.world_size > 1 and now != self._known:
            self.close()
            self._wrapped = DistributedDataParallel(self.model, **NO_BUFFERS)  # type: ignore[arg-type]
        self._known = now

    def close(self) -> None:
        """Release the wrapper: it must outlive neither the group of processes nor the shapes of the parameters."""
        if self._wrapped is not None:
            self._wrapped = None
            gc.collect()  # it is part of cycles, and holds on to where gradients were added up
