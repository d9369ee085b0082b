"""Ids that are too rare to say what their vector should be, and those that were never seen, share one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from cce.clustering import piece_size

if TYPE_CHECKING:
    from torch import Tensor

    from cce.clustering import Source


def with_rare_vector(source: Source, counts: Tensor, num_learned: int, *, share_tail: bool) -> Source:
    """`source`, but ids that were never seen are like the mean of the ids from `num_learned` on, the rare ones.

    counts: how often each id occurs, by which that mean is weighed. Without rare ids `source` stays as it is.
    share_tail: rare ids have that mean, too.
    """
    seen = counts[num_learned:].nonzero().squeeze(1) + num_learned
    if not len(seen):
        return source
    first = source(seen[:1])
    pieces = torch.split(seen, piece_size(first.shape[1]))
    sums = [counts[ids].double() @ source(ids).to("cpu", torch.float64) for ids in pieces]
    rare = (torch.stack(sums).sum(0) / counts[seen].sum()).to(first)

    def vectors(ids: Tensor) -> Tensor:
        found = source(ids)
        is_rare = (counts[ids] == 0) | (share_tail & (ids >= num_learned))
        return torch.where(is_rare.to(found.device).unsqueeze(1), rare, found)

    return vectors
