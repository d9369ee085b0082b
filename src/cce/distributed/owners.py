"""Who does which piece of a work that all processes need the result of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def share_out(weights: Sequence[float], num_ranks: int) -> list[int]:
    """The rank that does each piece: the heaviest first, each to the rank with the least to do so far."""
    loads = [0.0] * num_ranks
    owners = [0] * len(weights)
    for place in sorted(range(len(weights)), key=lambda place: -weights[place]):
        owners[place] = min(range(num_ranks), key=loads.__getitem__)
        loads[owners[place]] += weights[place]
    return owners
