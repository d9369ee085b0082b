"""The scores of a run on a prepared split or on raw rows with labels, and whether its probabilities are right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cce.data import MANIFEST, STANDARD, PreparedData
from cce.evaluation import ExpectedCalibrationError, ScoredRows, check_metrics, check_rows, describe_metric
from cce.runs.inputs import DataReference
from cce.runs.pack import Pack
from cce.runs.predicting import BATCH_SIZE
from cce.training import Scores, group_column, score

if TYPE_CHECKING:
    from cce.runs.loaded import LoadedRun
    from cce.schema import Batch, Schema


@dataclass(frozen=True)
class Evaluation:
    """The scores of so many rows; `name` is that of the split, or of the file."""

    name: str
    num_rows: int
    scores: Scores


def prepared_batches(
    data: PreparedData, schema: Schema, *, split: str, batch_size: int, needs_labels: bool = True
) -> Iterable[Batch]:
    """The batches of a split of a data set, in order; `schema` is that of the model."""
    if data.schema != schema:
        raise ValueError(
            f"data must have the columns and ids that the model was trained on, but {data.path} has others."
        )
    if not data.num_rows(split):
        raise ValueError(f"split must have rows, got {split!r} with none.")
    if needs_labels and not data.has_labels:
        raise ValueError(f"data must have labels to be scored, and {data.path} was prepared without.")
    return data.loader(split, batch_size=batch_size, shuffle=False)


def is_folder(data: Any) -> bool:
    """Whether data is the folder of a prepared data set, rather than raw rows."""
    return isinstance(data, str | Path) and Path(data).is_dir()


def check_rows_or_data(data: Any, split: str | None, form: str | None) -> None:
    """Reject a path that is not there, and options that do not go with what is there."""
    if isinstance(data, str | Path) and str(data) != STANDARD and not Path(data).exists():
        raise FileNotFoundError(f"data must be the folder of a data set or a file of raw rows, got {str(data)!r}.")
    if is_folder(data) and form is not None:
        raise ValueError(f"format goes with a file of raw rows, got {form!r} with the folder {str(data)!r}.")
    if not is_folder(data) and split is not None:
        raise ValueError(f"split goes with the folder of a data set, got {split!r} with raw rows.")


def score_batches(
    run: LoadedRun, batches: Iterable[Batch], metrics: Sequence[str] | None, group_by: str | None, *, name: str
) -> Evaluation:
    """Score all batches, by the metrics that are given, and for the rest as in the run."""
    if metrics is None:
        metrics, group_by = run.config.metrics, group_by or run.config.group_by or None
    elif group_by is None and any(describe_metric(name).by_group for name in metrics):
        group_by = run.config.group_by or None
    check_metrics(list(metrics), group_by=group_by)
    groups = None if group_by is None else group_column(run.schema, group_by)
    num_rows = 0

    def counted() -> Iterator[Batch]:
        nonlocal num_rows
        for batch in batches:
            num_rows += len(batch)
            yield batch

    device = next(run.model.parameters()).device
    scores = score(run.model, counted(), list(metrics), device=device, groups=groups)
    return Evaluation(name, num_rows, scores)


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
    split = "test" if prepared.num_rows("test") else "validation"
    metric, num_rows = ExpectedCalibrationError(), 0
    device = next(run.model.parameters()).device
    for batch in prepared_batches(prepared, run.schema, split=split, batch_size=BATCH_SIZE):
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
