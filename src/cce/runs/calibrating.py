"""Whether the probabilities of a run are right: the mean prediction and the mean label of held-out rows, bin by bin."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from cce.data import MANIFEST, PreparedData
from cce.evaluation import ExpectedCalibrationError, ScoredRows, check_rows
from cce.runs.evaluating import check_schema, prepared_batches
from cce.runs.inputs import DataReference
from cce.runs.pack import Pack
from cce.runs.predicting import BATCH_SIZE

if TYPE_CHECKING:
    from cce.runs.loaded import LoadedRun


@dataclass(frozen=True)
class CalibrationCurve:
    """Bins of predicted probabilities, each with its mean prediction, its mean label and the weight of its rows."""

    split: str
    num_rows: int
    error: float  # the expected calibration error
    bins: tuple[tuple[float, float, float], ...]


@torch.no_grad()
def calibrate(run: LoadedRun, data: Path | str | None = None) -> CalibrationCurve:
    """The calibration of a run on the test rows of its data set, or on the validation rows if it has no test rows.

    data: where the data set is, if it is not where it was.
    """
    prepared = PreparedData.open(data_of(run, data))
    check_schema(run.schema, prepared)
    split = "test" if prepared.num_rows("test") else "validation"
    metric, num_rows = ExpectedCalibrationError(), 0
    device = next(run.model.parameters()).device
    for batch in prepared_batches(prepared, split=split, batch_size=BATCH_SIZE):
        logits = run.model(batch.to(device)).float()
        check_rows(logits, batch.labels.to(device), first_row=num_rows)
        metric.add(ScoredRows.of(logits, batch.labels, batch.weights))
        num_rows += len(batch)
    bins = tuple((predicted, observed, weight) for predicted, observed, weight in metric.bins.tolist())
    return CalibrationCurve(split, num_rows, metric.compute(), bins)


def data_of(run: LoadedRun, data: Path | str | None) -> Path:
    """The folder of the data set that a run was trained on; anything else is rejected."""
    source, where = run.source, Path(data or run.config.data)
    if isinstance(source, DataReference):
        where = Path(data or source.data)
    if not (where / MANIFEST).is_file():
        raise FileNotFoundError(f"the data set is not at {str(where)!r}: --data says where it is.")
    checksum = source.manifest["state"]["data"] if isinstance(source, Pack) else source.checksum
    DataReference(run.path, where, checksum).check()
    return where
