"""What processes send each other: values from one to all, sums, rows, and fingerprints that must agree.

Tensors are sent as bytes, since gloo knows neither uint16 nor bfloat16 everywhere. With one process nothing is sent.
All are collectives: every rank must call them. Nothing is pickled (`pack`): plain values are JSON's, with keys that
are not strings, tuples and tensors written as marked lists.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup

from cce.distributed.ranks import Ranks, current_ranks

MARK = "="  # the one key of a dictionary that stands for something else
LOST = (
    "one of the {} ranks that share the rows is gone, or did not come within {}, the time-out of the process group: "
    "load the last checkpoint, with as many ranks as there are."
)
# what torch says when a process of the group is gone
LOST_PEER = ("is gone, or", "Timed out", "gloo", "NCCL", "onnection closed", "onnection reset", "Broken pipe")


def broadcast(value: Any, ranks: Ranks, *, source: int = 0) -> Any:
    """The value that rank `source` has, of plain values and tensors, on every rank; tensors arrive on the CPU."""
    if ranks.world_size == 1:
        return value
    tensors: dict[str, Tensor] = {}
    message: list[Any] = [None]
    if ranks.rank == source:
        plain = pack(value, tensors)
        tensors = {name: tensor.cpu() for name, tensor in tensors.items()}
        message = [(plain, {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()})]
    distributed.broadcast_object_list(message, src=source)
    plain, forms = message[0]
    for name, (dtype, shape) in forms.items():
        sent = tensors[name] if ranks.rank == source else torch.empty(shape, dtype=dtype)
        tensors[name] = _broadcast_tensor(sent, source)
    return value if ranks.rank == source else unpack(plain, tensors)


def _broadcast_tensor(tensor: Tensor, source: int) -> Tensor:
    if tensor.numel():
        flat = _sendable(tensor.contiguous().reshape(-1).view(torch.uint8))
        distributed.broadcast(flat, src=source)
        return flat.cpu().view(tensor.dtype).view(tensor.shape)
    return tensor


def sum_over_ranks(tensor: Tensor, ranks: Ranks) -> Tensor:
    """The sum of all ranks' tensors, in place."""
    if ranks.world_size > 1:
        sent = _sendable(tensor)
        distributed.all_reduce(sent)
        if sent is not tensor:
            tensor.copy_(sent)
    return tensor


def gather_rows(rows: Tensor, ranks: Ranks) -> Tensor:
    """The rows of all ranks, which may have any number of them each, one rank after the other."""
    if ranks.world_size == 1:
        return rows
    counts = torch.zeros(ranks.world_size, dtype=torch.int64)
    counts[ranks.rank] = len(rows)
    most = int(sum_over_ranks(counts, ranks).max())
    mine = torch.zeros((most, *rows.shape[1:]), dtype=rows.dtype)
    mine[: len(rows)] = rows
    mine = _sendable(mine)
    all_rows = [torch.empty_like(mine) for _ in range(ranks.world_size)]
    distributed.all_gather(all_rows, mine)
    return torch.cat([some[:count].cpu() for some, count in zip(all_rows, counts.tolist(), strict=True)])


def exchange_rows(rows: Tensor, counts: Sequence[int], their_counts: Sequence[int]) -> Tensor:
    """Send rows to every rank, `counts` to each in order; the rows that all ranks have for this one, `their_counts`."""
    if len(counts) == 1:
        return rows
    width = math.prod(rows.shape[1:]) * rows.element_size()
    sent = _sendable(rows.contiguous().view(torch.uint8).flatten())
    received = sent.new_empty(sum(their_counts) * width)
    sizes, their_sizes = ([count * width for count in each] for each in (counts, their_counts))
    try:
        distributed.all_to_all_single(received, sent, their_sizes, sizes)
    except RuntimeError as error:
        if not is_lost_peer(error):
            raise
        options = distributed.group.WORLD._get_backend(sent.device).options  # type: ignore[union-attr]
        raise RuntimeError(LOST.format(len(counts), options._timeout)) from error
    return received.to(rows.device).view(rows.dtype).view(-1, *rows.shape[1:])


def _sendable(tensor: Tensor) -> Tensor:
    """The tensor, on the current GPU if the group sends nothing from the CPU (`init_process_group("nccl")`)."""
    if tensor.is_cpu and "cpu:" not in distributed.get_backend_config():
        return tensor.to(torch.accelerator.current_accelerator())
    return tensor


def check_same(tensors: Mapping[str, Tensor], *, advice: str = "", group: ProcessGroup | None = None) -> None:
    """Raise on every rank if a tensor is not the same, to the bit, on all; `advice` says what to do about it."""
    world_size = distributed.get_world_size(group) if current_ranks().world_size > 1 else 1
    if world_size == 1:
        return
    found: list[dict[str, str]] = [{} for _ in range(world_size)]
    distributed.all_gather_object(found, {name: _fingerprint(tensor) for name, tensor in tensors.items()}, group=group)
    for rank, theirs in enumerate(found):
        wrong = [name for name in found[0] | theirs if found[0].get(name) != theirs.get(name)]
        if wrong:
            more = f" ({len(wrong)} such tensors)" if wrong[1:] else ""
            problem = f"{wrong[0]} must be the same on all ranks, but ranks 0 and {rank} differ{more}."
            raise RuntimeError(f"{problem} {advice}".rstrip())


def _fingerprint(tensor: Tensor) -> str:
    content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    form = f"{tensor.dtype} {tuple(tensor.shape)} "
    return form + hashlib.sha256(np.ascontiguousarray(content).data).hexdigest()


def is_lost_peer(error: RuntimeError) -> bool:
    """Whether an error of torch means that another process has died."""
    return any(sign in str(error) for sign in LOST_PEER)


def pack(value: Any, tensors: dict[str, Tensor], name: str = "") -> Any:
    """`value` in plain values; its tensors go to `tensors`, under names that say where they were."""
    if isinstance(value, Tensor):
        tensors[name] = value.detach()
        return {MARK: ["tensor", name]}
    if isinstance(value, dict):
        return {MARK: ["dict", [[key, pack(item, tensors, f"{name}.{key}")] for key, item in value.items()]]}
    if isinstance(value, list | tuple):
        items = [pack(item, tensors, f"{name}.{index}") for index, item in enumerate(value)]
        return {MARK: ["tuple", items]} if isinstance(value, tuple) else items
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{name or 'value'} must hold plain values and tensors to be saved, got {type(value).__name__}.")


def unpack(plain: Any, tensors: dict[str, Tensor]) -> Any:
    """The value that `pack` was given."""
    if isinstance(plain, list):
        return [unpack(item, tensors) for item in plain]
    if not isinstance(plain, dict):
        return plain
    kind, content = plain[MARK]
    if kind == "tensor":
        return tensors[content]
    if kind == "tuple":
        return tuple(unpack(item, tensors) for item in content)
    return {key: unpack(item, tensors) for key, item in content}
