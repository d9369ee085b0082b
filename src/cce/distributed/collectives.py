"""What processes send each other: values from one to all, sums, rows, and fingerprints that must agree.

Tensors travel as bytes, since gloo knows neither uint16 nor bfloat16 everywhere. With one process nothing is sent.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, distributed

from cce.distributed.packing import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cce.distributed.ranks import Ranks

# what torch says when a process of the group is gone
LOST_PEER = ("gloo", "NCCL", "onnection closed", "onnection reset", "Broken pipe")


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
        flat = tensor.contiguous().reshape(-1).view(torch.uint8)
        distributed.broadcast(flat, src=source)
        return flat.view(tensor.dtype).view(tensor.shape)
    return tensor


def sum_over_ranks(tensor: Tensor, ranks: Ranks) -> Tensor:
    """The sum of all ranks' tensors, in place."""
    if ranks.world_size > 1:
        distributed.all_reduce(tensor)
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
    all_rows = [torch.empty_like(mine) for _ in range(ranks.world_size)]
    distributed.all_gather(all_rows, mine)
    return torch.cat([some[:count] for some, count in zip(all_rows, counts.tolist(), strict=True)])


def check_same(tensors: Mapping[str, Tensor], ranks: Ranks) -> None:
    """Raise if a tensor is not the same, to the bit, on every rank."""
    if ranks.world_size == 1 or not tensors:
        return
    prints = torch.tensor([list(_fingerprint(tensor)) for tensor in tensors.values()], dtype=torch.uint8)
    everywhere = gather_rows(prints.unsqueeze(0), ranks)
    differs = (everywhere != everywhere[:1]).any(0).any(-1)
    wrong = [name for name, differ in zip(tensors, differs.tolist(), strict=True) if differ]
    if wrong:
        raise RuntimeError(f"{wrong[0]} must be the same on all processes, but it is not ({len(wrong)} such tensors).")


def _fingerprint(tensor: Tensor) -> bytes:
    content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(np.ascontiguousarray(content).data).digest()


def is_lost_peer(error: RuntimeError) -> bool:
    """Whether an error of torch means that another process has died."""
    return any(sign in str(error) for sign in LOST_PEER)
