"""Facts: tensors that a module keeps which are neither weights nor buffers.

Pointers and the seeds of hash functions say where to look; they are not numbers to train or to average. Were they
parameters, optimizers and parameter counts would see them. Were they buffers, data-parallel training would send them at
every step, and averaged copies of a model (EMA, SWA) would average them into nonsense. `state_dict` holds them all the
same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable


class Versioned(nn.Module):
    """A module that counts how often an attribute was set: whoever noted addresses of it can see that they are old."""

    version: int = 0

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name != "training":  # which `train()` and `eval()` set, and which moves nothing
            self.__dict__["version"] = self.version + 1


class FactModule(Versioned):
    """A module whose attributes `facts` are integer tensors saved with it; `moved_facts` also follow `.to(device)`."""

    facts: ClassVar[tuple[str, ...]]
    moved_facts: ClassVar[tuple[str, ...]] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of the facts of this module alone."""
        return sum(tensor.nbytes for tensor in self._facts().values())

    def _facts(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in self.facts}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002
        for name in self.moved_facts:
            setattr(self, name, fn(getattr(self, name)))
        applied: Self = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return applied

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:  # noqa: FBT001
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, tensor in self._facts().items():
            destination[prefix + name] = tensor

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,  # noqa: FBT001
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        loaded = {name: state_dict.pop(prefix + name, None) for name in self.facts}
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        for name, tensor in self._facts().items():
            found = loaded[name]
            if found is None:
                missing_keys.append(prefix + name)
            elif (found.shape, found.dtype) != (tensor.shape, tensor.dtype):
                ours, theirs = (f"{tuple(t.shape)} of {t.dtype}" for t in (tensor, found))
                error_msgs.append(
                    f"{name} mismatch for {prefix}{name}: the checkpoint has {theirs}, the module {ours}."
                )
            elif name in self.moved_facts and local_metadata.get("assign_to_params_buffers", False):
                setattr(self, name, found)  # the module's own may be on the meta device, which holds nothing
            else:
                tensor.copy_(found)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and deepcopy, which cannot rebuild a tensor of uint16: its bytes travel instead.

        They are the tensor's own, not a copy: what is sent to another process lies in shared memory, which must live
        until the other process has opened it.
        """
        travelling = {name: (_bytes_of(tensor), tensor.dtype) for name, tensor in self._facts().items()}
        return self.__dict__ | travelling

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrived = {name: torch.as_tensor(state[name][0]).view(state[name][1]) for name in self.facts}
        super().__setstate__(state | arrived)  # type: ignore[no-untyped-call]


def _bytes_of(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8)
