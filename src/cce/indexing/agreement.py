"""Index state that must be the same on all ranks, since nobody sends it.

Data-parallel training synchronises parameters, not index state. Ranks with different hash seeds or pointers would read
different rows for the same id, and average the gradients of unrelated rows. So state is drawn from a common seed
(`randomness.common_generator`), and fingerprints are compared: after every clustering, and at the first forward in
training of a `DistributedDataParallel` (`first_forward`).
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel

from cce.distributed import check_same
from cce.indexing.state import IndexModule

ADVICE = (
    "An id would read different rows on each rank: make tables after torch.distributed.init_process_group, where ranks "
    "agree on a seed, or give them the same seed on every rank, or load the same state_dict on all."
)


def check_index_state(models: Mapping[str, nn.Module], *, group: ProcessGroup | None = None) -> None:
    """Raise on every rank if index state differs between ranks; keys say what to call a model or table."""
    tensors: dict[str, Tensor] = {}
    for called, model in models.items():
        tensors |= index_tensors(model, called)
    check_same(tensors, advice=ADVICE, group=group)


def index_tensors(model: nn.Module, called: str = "the table") -> dict[str, Tensor]:
    """All index state of a model that ranks have in common, each with its name and that of its table."""
    modules = dict(model.named_modules())
    found = {}
    for path, module in modules.items():
        if isinstance(module, IndexModule) and not module.is_local:
            table = path
            while table and isinstance(modules[table], IndexModule):
                table = table.rpartition(".")[0]
            inner, owner = path[len(table) :].lstrip("."), f"table {table!r}" if table else called
            for name, tensor in module.saved_state().items():
                found[f"{inner}.{name}".lstrip(".") + f" of {owner}"] = tensor
    return found


def _watch(owner: nn.Module, name: str, _: nn.Module | None) -> None:
    """Add the check to a model that is being wrapped; torch calls this for every module that is put into another."""
    if name == "module" and isinstance(owner, DistributedDataParallel):
        from cce.indexing.first_forward import FirstForward

        hook = FirstForward()
        hook.handle = owner.register_forward_pre_hook(hook)


register_module_module_registration_hook(_watch)
