"""A model that is trained by one process or by several alike."""

from __future__ import annotations

import gc
import inspect
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from cce.distributed import Ranks
    from cce.schema import Batch

_names = inspect.signature(DistributedDataParallel).parameters
# buffers are not sent at every forward; torch 2.13 has another name for it
NO_BUFFERS = {"forward_sync_buffers" if "forward_sync_buffers" in _names else "broadcast_buffers": False}


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
