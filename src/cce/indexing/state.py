"""Index state: tensors that a module keeps which are neither weights nor buffers.

Pointers and the seeds of hash functions say where to look; they are not values to train or to average. Were they
parameters, optimizers and parameter counts would see them. Were they buffers, data-parallel training would send them at
every step, and averaged copies of a model (EMA, SWA) would average them into nonsense. `state_dict` holds them all the
same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn


class Version:
    """How often an attribute of a module was set. An object of its own: whoever watches it holds no table alive."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Versioned(nn.Module):
    """A module that counts how often an attribute was set, so that a launch plan made of it can tell that it is old."""

    version: Version

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.__dict__["version"] = Version()
        super().__init__(*arguments, **options)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name != "training":  # set by `train()` and `eval()`, and no part of a lookup
            self.version.count += 1

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.__dict__["version"] = Version()  # a copy changes on its own


def versions_of(modules: Iterable[nn.Module]) -> list[Version]:
    """The versions of those modules that have one."""
    return [module.version for module in modules if isinstance(module, Versioned)]


class IndexModule(Versioned):
    """A module whose attributes `index_state` are tensors saved with it, mostly of integers.

    `device_tensors`, saved or not, follow `.to(device)`; the others stay on the CPU, or on the meta device.
    """

    index_state: ClassVar[tuple[str, ...]]
    device_tensors: ClassVar[tuple[str, ...]] = ()
    is_local = False  # whether this rank has a share of its own, which is not that of the others
    stays_on_cpu = False  # whether `.to(device)` leaves device tensors where they are: see `keep_on_cpu`

    @property
    def nbytes(self) -> int:
        """Bytes of the index state of this module alone."""
        return sum(tensor.nbytes for tensor in self._index_state().values())

    def saved_state(self) -> dict[str, Tensor]:
        """What this module alone saves beside parameters and buffers, be it in `index_state` or by a way of its own."""
        saved: dict[str, Any] = {}
        self._save_to_state_dict(saved, "", keep_vars=False)
        return {name: value for name, value in saved.items() if name not in self._parameters | self._buffers}

    def _index_state(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in self.index_state}

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Set the index state to what it is at the start: zeros, unless a class draws it from `generator`."""
        del generator
        for tensor in self._index_state().values():
            tensor.zero_()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002
        state = {name: getattr(self, name) for name in self.device_tensors} | self._index_state()
        for name, tensor in state.items():
            follows = name in self.device_tensors and not self.stays_on_cpu
            setattr(self, name, fn(tensor) if follows else _applied_on_cpu(tensor, fn))
        applied: Self = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return applied

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:  # noqa: FBT001
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, tensor in self._index_state().items():
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
        loaded = {name: state_dict.pop(prefix + name, None) for name in self.index_state}
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        for name, tensor in self._index_state().items():
            found = loaded[name]
            if found is None:
                missing_keys.append(prefix + name)
            elif (found.shape, found.dtype) != (tensor.shape, tensor.dtype):
                ours, theirs = (f"{tuple(t.shape)} of {t.dtype}" for t in (tensor, found))
                error_msgs.append(
                    f"{name} mismatch for {prefix}{name}: the checkpoint has {theirs}, the module {ours}."
                )
            elif local_metadata.get("assign_to_params_buffers", False):
                setattr(self, name, found if name in self.device_tensors else found.to("cpu", copy=True))
            else:
                tensor.copy_(found)


def keep_on_cpu(model: nn.Module) -> None:
    """Have the pointers and int8 rows of a model stay on the CPU at `.to(device)`: ids then travel there and back.

    Seeds of hash functions, which are small, still follow.
    """
    for module in model.modules():
        if isinstance(module, IndexModule) and "seeds" not in module.device_tensors:
            module.stays_on_cpu = True


def _applied_on_cpu(tensor: Tensor, fn: Callable[[Tensor], Tensor]) -> Tensor:
    """The tensor where it is, unless `fn` leads to the meta device or from it to another: then zeros on the CPU."""
    goes_to_meta = fn(torch.empty(0, device=tensor.device)).is_meta
    if tensor.is_meta == goes_to_meta:
        return tensor
    return torch.zeros_like(tensor, device="meta" if goes_to_meta else "cpu")
