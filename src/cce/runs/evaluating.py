"""Scores and probabilities of a run, on a prepared split or on raw rows, and files of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from cce.data import COMPRESSED, FORMATS, find_format
from cce.evaluation import check_metrics
from cce.files import check_target, replace_file
from cce.schema import Batch
from cce.training import Scores, score

if TYPE_CHECKING:
    from cce.runs.loaded import LoadedRun


BATCH_SIZE = 16_384
COLUMN = "probability"


@dataclass(frozen=True)
class Evaluation:
    """The scores of this many rows; `name` is that of the split, or of the file."""

    name: str
    num_rows: int
    scores: Scores


def score_batches(run: LoadedRun, batches: Iterable[Batch], metrics: Sequence[str] | None, *, name: str) -> Evaluation:
    """Score all batches, by the metrics that are given, or by those of the run."""
    names, num_rows = list(run.options["metrics"] if metrics is None else metrics), 0
    check_metrics(names)

    def counted() -> Iterator[Batch]:
        nonlocal num_rows
        for batch in batches:
            num_rows += len(batch)
            yield batch

    device = next(run.model.parameters()).device
    scores = score(run.model, counted(), names, device=device)
    return Evaluation(name, num_rows, scores)


@torch.no_grad()
def predict_batches(model: nn.Module, batches: Iterable[Batch], *, progress: bool) -> Iterator[np.ndarray]:
    """The probabilities of each batch, float32."""
    device, num_rows = next(model.parameters()).device, 0
    with tqdm(desc="rows", unit="row", leave=False, disable=None if progress else True) as bar:
        for batch in batches:
            logits = model(batch.to(device)).float().cpu()
            if not bool(logits.isfinite().all()):
                rows = f"rows {num_rows + 1} to {num_rows + len(batch)}"
                raise ValueError(f"logits must be finite, got NaN or infinity in {rows}.")
            yield torch.sigmoid(logits).numpy()
            num_rows += len(batch)
            bar.update(len(batch))


def write_predictions(blocks: Iterable[np.ndarray], out: str | Path) -> int:
    """Write probabilities to a file, whole or not at all; return how many there were."""
    by_columns, num_rows = FORMATS[find_format(out)].by_columns, 0
    check_target("out", Path(out))
    if Path(out).suffix == COMPRESSED:
        raise ValueError(f"out must be a plain file, got {str(out)!r}.")
    file: Any
    with replace_file(Path(out)) as temporary, _open(temporary, by_columns=by_columns) as file:
        for block in blocks:
            if by_columns:
                file.write({COLUMN: block})
            else:  # the shortest digits that are the number again in float32
                file.writelines(f"{value}\n" for value in block)
            num_rows += len(block)
    return num_rows


def _open(path: Path, *, by_columns: bool) -> Any:
    if by_columns:
        from cce.data import TableWriter

        return TableWriter(path, {COLUMN: "float32"})
    file = path.open("w", encoding="utf-8")
    file.write(f"{COLUMN}\n")
    return file
