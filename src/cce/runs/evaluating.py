"""The scores of a run on a prepared split, or on raw rows with labels: what `cce evaluate` does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cce.data import STANDARD, PreparedData
from cce.evaluation import check_metrics, describe_metric
from cce.training import group_column, score

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import nn

    from cce.schema import Batch, Schema
    from cce.training import Scores, TrainConfig


@dataclass(frozen=True)
class Evaluation:
    """The scores of so many rows; `name` is that of the split, or of the file."""

    name: str
    num_rows: int
    scores: Scores


@dataclass(frozen=True)
class Scorer:
    """A model, and how its rows are scored where nothing else is said: as in its run."""

    model: nn.Module
    config: TrainConfig
    schema: Schema

    def score(
        self,
        batches: Iterable[Batch],
        metrics: Sequence[str] | None,
        group_by: str | None,
        *,
        name: str,
        streaming: bool,
    ) -> Evaluation:
        """Score all batches."""
        chosen, group_by = chosen_metrics(self.config, metrics, group_by)
        groups = None if group_by is None else group_column(self.schema, group_by)
        counted = _Counted(batches)
        device = next(self.model.parameters()).device
        scores = score(self.model, counted, chosen, device=device, groups=groups, streaming=streaming)
        return Evaluation(name, counted.num_rows, scores)


class _Counted:
    """Batches whose rows are counted as they are read."""

    def __init__(self, batches: Iterable[Batch]) -> None:
        self.batches, self.num_rows = batches, 0

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.batches:
            self.num_rows += len(batch)
            yield batch


def check_schema(schema: Schema, data: PreparedData) -> None:
    """Reject data with other columns or ids than a model was trained on."""
    if data.schema != schema:
        raise ValueError(
            f"data must have the columns and ids that the model was trained on, but {data.path} has others."
        )


def prepared_batches(data: PreparedData, *, split: str, batch_size: int, needs_labels: bool = True) -> Iterable[Batch]:
    """The batches of a split of a data set, in order."""
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


def chosen_metrics(
    config: TrainConfig, metrics: Sequence[str] | None, group_by: str | None
) -> tuple[list[str], str | None]:
    """The metrics and the feature to group by: what is given, and for the rest what the run had."""
    if metrics is None:
        metrics, group_by = config.metrics, group_by or config.group_by
    elif group_by is None and any(describe_metric(name).by_group for name in metrics):
        group_by = config.group_by
    check_metrics(list(metrics), group_by=group_by)
    return list(metrics), group_by
