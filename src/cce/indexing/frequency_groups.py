"""Groups of ids of like frequency. Ids are numbered by falling count, so an octave of ids is such a group.

Group `g` has the rows from `2**g - 1` to `2**(g + 1) - 2`. Rows that rare ids share come last and are a group of their
own. What is kept for each group, such as a second moment, is kept some twenty times for ten million ids.
"""

from __future__ import annotations

import torch
from torch import Tensor


def group_starts(num_learned: int, num_shared: int) -> list[int]:
    """The first row of each group."""
    octaves = [2**group - 1 for group in range(num_learned.bit_length())]
    return [*octaves, num_learned] if num_shared else octaves


def group_of(rows: Tensor, starts: list[int]) -> Tensor:
    """The group of each row."""
    return torch.bucketize(rows, torch.tensor(starts, device=rows.device), right=True) - 1
