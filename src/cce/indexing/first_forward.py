"""The check of index state at the first forward of a data-parallel model.

It is a collective, so it runs only where all ranks take part: torch declares a forward of `DistributedDataParallel` a
synchronisation point. A forward in evaluation, without gradients or without their reduction may be one rank's own, and
is let through; so is one under `Join`, where a rank without inputs would not take part. FSDP has no such wrapper.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from cce.indexing.agreement import check_index_state, index_tensors


class FirstForward:
    """A hook before every forward, which removes itself once it has compared."""

    handle: RemovableHandle

    def __init__(self) -> None:
        self.is_done = False

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # imports torch's compiler, as data-parallel models do
    def __call__(self, parallel: DistributedDataParallel, _: Any) -> None:
        """Compare the index state of the model, if this is a forward of all ranks."""
        if self.is_done or not _is_common(parallel):
            return
        if index_tensors(parallel.module):  # a model without our tables sends nothing
            check_index_state({"the table": parallel.module}, group=parallel.process_group)
        self.is_done = True  # for compiled code, which goes on calling it
        self.handle.remove()


def _is_common(parallel: DistributedDataParallel) -> bool:
    """Whether all ranks must be in this forward; where ranks join with uneven inputs, one may have none at all."""
    reduces = torch.is_grad_enabled() and parallel.require_backward_grad_sync
    return parallel.training and reduces and not parallel._join_config.enable
