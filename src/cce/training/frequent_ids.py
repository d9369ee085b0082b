"""Which ids occur often enough in training for a pointer of theirs to be learned.

The vector of an id that was seen twice says little about it, so clustering it adds nothing, takes centroids from ids
that matter, and its pointer costs as much as any. Such ids stay hashed. `docs/results.md` has the measurement.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from cce.data import PreparedData
    from cce.schema import Batch
    from cce.training.config import TrainConfig

BLOCK = 1 << 16  # rows counted at a time


def with_num_learned(config: TrainConfig, data: PreparedData) -> TrainConfig:
    """`config` with the number of ids of each feature that have learned pointers, counted in the training rows."""
    counts_matter = config.method == "cce" and config.preset == "tuned" and config.learned_min_count > 1
    if not counts_matter or config.num_learned or config.unified or "num_learned" in config.method_options:
        return config
    counts = count_ids(data)
    return replace(config, num_learned={name: num_frequent(c, config.learned_min_count) for name, c in counts.items()})


def num_frequent(counts: Tensor, min_count: int) -> int:
    """How many ids to keep, from the first on: ids are numbered by falling count, but for 0, "unseen or missing"."""
    return min(1 + int((counts[1:] >= min_count).sum()), len(counts))


def count_ids(data: PreparedData) -> dict[str, Tensor]:
    """How often each id of each feature occurs in the training rows."""
    counts = {feature.name: torch.zeros(feature.num_embeddings, dtype=torch.int64) for feature in data.schema.features}
    for batch in data.loader("train", batch_size=BLOCK, shuffle=False):
        for index, count in enumerate(counts.values()):
            count.add_(torch.bincount(_ids_of(batch, index), minlength=len(count)))
    return counts


def _ids_of(batch: Batch, index: int) -> Tensor:
    if batch.offsets is None:
        return batch.ids[:, index]
    num_rows = len(batch.labels)
    first, last = batch.offsets[index * num_rows], batch.offsets[(index + 1) * num_rows]
    return batch.ids[int(first) : int(last)]
