"""Eight real data sets as tensors: ids in the order of appearance, dense values normalised by the training rows."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

SETS = {  # epochs, and whether test rows are the latest
    "ml1m": (2, False),
    "anime": (2, False),
    "bookcrossing": (1, False),
    "criteo_dac80k": (2, False),
    "debian_deps": (2, False),
    "tennis": (1, True),
    "grocery_repeat": (1, True),
    "movietweetings": (2, True),
}
DAYS_BETWEEN = {"grocery_repeat": 28}  # the label looks ahead so far


class Rows(NamedTuple):
    """A data set in memory: ids in the order of appearance."""

    ids: Tensor  # (rows, features)
    dense: Tensor  # (rows, dense features), normalised by the training rows
    labels: Tensor
    sizes: list[int]  # ids of each feature
    parts: dict[str, Tensor]  # row numbers


def read_rows(folder: Path, name: str) -> Rows:
    """All categorical and dense columns, split 80/10/10 at random or by time."""
    from pyarrow import compute, parquet

    table = parquet.read_table(folder / f"{name}.parquet")
    names = {kind: [each for each in table.column_names if each[0] == kind and each[1:].isdigit()] for kind in "cd"}
    encoded = [compute.dictionary_encode(table[each].combine_chunks()) for each in names["c"]]
    ids = np.stack([each.indices.to_numpy(zero_copy_only=False).astype(np.int64) for each in encoded], axis=1)
    times = table["timestamp"].to_numpy() if SETS[name][1] else None
    parts = _split(len(table), times, DAYS_BETWEEN.get(name, 0))
    dense = np.zeros((len(table), 0))
    if names["d"]:
        columns = [table[each].to_numpy(zero_copy_only=False).astype(np.float64) for each in names["d"]]
        dense = _normalised(np.stack(columns, axis=1), parts["train"])
    return Rows(
        torch.from_numpy(ids),
        torch.from_numpy(dense).float(),
        torch.from_numpy(table["label"].to_numpy().copy()).float(),
        [len(each.dictionary) for each in encoded],
        {part: torch.from_numpy(rows) for part, rows in parts.items()},
    )


def _split(num_rows: int, times: np.ndarray[Any, Any] | None, days_between: int) -> dict[str, np.ndarray[Any, Any]]:
    if times is None:
        order = np.random.default_rng(0).permutation(num_rows)
        known = order[: int(0.9 * num_rows)]
    else:
        order = np.argsort(times, kind="stable")
        first_of_test = times[order[int(0.9 * num_rows)]]
        seconds = 86_400 if times.max() > 1e7 else 1
        known = order[: np.searchsorted(times[order], first_of_test - days_between * seconds)]
    cut = int(len(known) * 8 / 9)
    return {"train": known[:cut], "validation": known[cut:], "test": order[int(0.9 * num_rows) :].copy()}


def _normalised(values: np.ndarray[Any, Any], train: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    is_missing = np.isnan(values)
    values = np.sign(values) * np.log1p(np.abs(values))
    values = (values - np.nanmean(values[train], axis=0)) / (np.nanstd(values[train], axis=0) + 1e-6)
    values[is_missing] = 0
    return values


def part_of(rows: Rows, *, num_features: int | None = None, num_rows: int | None = None) -> Rows:
    """The first features, without dense values, or a few rows of each part."""
    if num_features is not None:
        ids = rows.ids[:, :num_features].contiguous()
        rows = rows._replace(ids=ids, sizes=rows.sizes[:num_features], dense=torch.zeros(len(ids), 0))
    return rows._replace(parts={name: own[:num_rows] for name, own in rows.parts.items()})
