"""How often ids occur in a split, and the share of occurrences that training rows say nothing about. NumPy alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cce.data.record_format import id_dtype, map_file, record_dtype, rows_file, values_file

if TYPE_CHECKING:
    from cce.schema import Schema

COUNTED = 1 << 20  # ids at a time, or as many as there are in a vocabulary
MANY = 0.2  # of the occurrences of a feature: what a model is scored on is then largely what it has never seen


def count_ids(folder: Path, split: str, schema: Schema) -> dict[str, np.ndarray]:
    """How often each id of each feature occurs in a split."""
    records = map_file(folder / rows_file(split), record_dtype(schema))
    counts = {}
    for index, feature in enumerate(schema.features):
        size, ids = feature.num_embeddings, records
        if feature.multi_hot:
            ids = map_file(folder / values_file(split, index), id_dtype(size))
        counts[feature.name] = np.zeros(size, np.int64)
        for start in range(0, len(ids), max(COUNTED, size)):
            some = ids[start : start + max(COUNTED, size)]
            some = some if feature.multi_hot else some[f"id{index}"]
            counts[feature.name] += np.bincount(some, minlength=size)
    return counts


def unseen_shares(
    folder: Path, splits: Iterable[str], schema: Schema, *, least: Mapping[str, int] | None = None
) -> dict[str, dict[str, float]]:
    """By split and feature, the share of occurrences of ids that training rows have fewer than `least` times.

    Id 0, which stands for values that are not in the vocabulary, always counts as unseen.
    least: by feature; 1 for others, which is: ids that training rows do not have.
    """
    wanted = least or {}
    seen = count_ids(folder, "train", schema)
    rare = {name: counts < wanted.get(name, 1) for name, counts in seen.items()}
    for is_rare in rare.values():
        is_rare[0] = True
    found = {}
    for split in splits:
        counts = seen if split == "train" else count_ids(folder, split, schema)
        found[split] = {name: float(own[rare[name]].sum() / max(1, own.sum())) for name, own in counts.items()}
    return found


def unseen_lines(shares: Mapping[str, Mapping[str, float]], what: str = "unseen in training") -> list[str]:
    """A line with the mean share of each split, and a warning for each held-out split with many in some feature."""
    means = {split: sum(own.values()) / max(1, len(own)) for split, own in shares.items()}
    lines = [f"occurrences {what}: " + ", ".join(f"{split} {share:.1%}" for split, share in means.items())]
    for split, own in shares.items():
        many = [f"{name} {share:.0%}" for name, share in own.items() if share > MANY]
        if many and split != "train":
            lines.append(f"warning: more than {MANY:.0%} of {split} is {what}, by feature: {', '.join(many)}")
    return lines
