"""Who does which piece of a work that all processes need the result of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def partition_work(weights: Sequence[float], world_size: int) -> list[int]:
    """The rank that does each piece: the heaviest first, each to the rank with the least to do so far."""
    loads = [0.0] * world_size
    owners = [0] * len(weights)
    for index in sorted(range(len(weights)), key=lambda index: -weights[index]):
        owners[index] = min(range(world_size), key=loads.__getitem__)
        loads[owners[index]] += weights[index]
    return owners
