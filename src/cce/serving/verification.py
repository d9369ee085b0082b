"""Does an exported program say what the trained model says? On held-out rows, and over the whole range of ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from cce.schema import Batch, Schema
from cce.serving.program import Inputs, make_inputs

if TYPE_CHECKING:
    from cce.data import PreparedData

Program = Callable[[Inputs], Tensor]
BATCH = 4_096
SWEPT = 1 << 16  # rows over the range of ids
TOLERANCE = 1e-4  # largest difference of a logit that is let through


@dataclass(frozen=True)
class Verification:
    """What was compared, and how far apart it is."""

    split: str
    num_rows: int  # held out
    num_swept: int  # over the range of ids
    difference: float  # largest, of a logit

    def __str__(self) -> str:
        rows = f"{self.num_rows:,} rows of {self.split} and {self.num_swept:,} over all ids"
        return f"largest difference of a logit {self.difference:.7f} ({rows})"


def verify(program: Program, model: nn.Module, data: PreparedData, schema: Schema) -> Verification:
    """Compare a program with the trained model; a ValueError above the tolerance, or where logits are not finite."""
    split = next((name for name in ("test", "validation", "train") if name in data.splits and data.num_rows(name)), "")
    if not split:
        raise ValueError(f"data must have rows to verify with, got none in {data.path}.")
    num_rows, difference = _compare(program, model, data.loader(split, batch_size=BATCH, shuffle=False), schema)
    some = next(iter(data.loader(split, batch_size=BATCH, shuffle=False)))
    num_swept, swept = _compare(program, model, sweep(some, schema), schema)
    found = Verification(split, num_rows, num_swept, max(difference, swept))
    if not found.difference <= TOLERANCE:
        raise ValueError(f"verification failed: tolerance is {TOLERANCE:g}, got {found}.")
    return found


def sweep(rows: Batch, schema: Schema) -> Iterator[Batch]:
    """Rows whose ids go through every vocabulary, from the first id to the last; dense values are those of `rows`."""
    num_rows = min(SWEPT, max(feature.num_embeddings for feature in schema.features))
    for start in range(0, num_rows, BATCH):
        steps = torch.arange(start, min(start + BATCH, num_rows))
        columns = [_spread(steps, feature.num_embeddings, num_rows) for feature in schema.features]
        dense, labels = rows.dense[steps % len(rows)], torch.zeros(len(steps))
        if not schema.is_multi_hot:
            yield Batch(dense, torch.stack(columns, dim=1), labels)
        else:
            yield Batch(dense, torch.cat(columns), labels, torch.arange(len(steps) * len(columns) + 1))


def _spread(steps: Tensor, num_ids: int, num_rows: int) -> Tensor:
    """Ids evenly over `[0, num_ids)`, the last included; all of them, again and again, if there are fewer than rows."""
    if num_ids <= num_rows:
        return steps % num_ids
    return steps * (num_ids - 1) // (num_rows - 1)


@torch.no_grad()
def _compare(program: Program, model: nn.Module, batches: Iterable[Batch], schema: Schema) -> tuple[int, float]:
    """Rows of all batches, and the largest difference of a logit."""
    num_rows, largest = 0, 0.0
    for batch in batches:
        expected, got = model(batch).float(), program(make_inputs(batch, schema)).float()
        if not bool(got.isfinite().all()):
            raise ValueError(f"logits must be finite, got NaN or infinity in rows {num_rows} to {num_rows + len(got)}.")
        largest = max(largest, float((got - expected).abs().max()))
        num_rows += len(got)
    return num_rows, largest
