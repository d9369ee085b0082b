"""`train`, `evaluate` and `predict`: what the verbs of these names do, as functions that return objects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cce.data import PreparedData
from cce.runs.loaded import LoadedRun, load_run
from cce.runs.predicting import BATCH_SIZE
from cce.training import Trainer, make_config

if TYPE_CHECKING:
    import numpy as np

    from cce.records import RunRecord
    from cce.runs.evaluating import Evaluation


def train(
    data: PreparedData | Path | str, *, out: Path | str | None = None, progress: bool = True, **options: Any
) -> RunRecord:
    """Train a model on a prepared data set, and return the record of the run.

    out: the folder of the run (default: runs/DATA-METHOD).
    options: those of `TrainConfig`, such as `method="cce", model="deepfm", epochs=2`.
    """
    path = data.path if isinstance(data, PreparedData) else Path(data)
    config = make_config({"data": str(path.resolve()), **options})
    return Trainer(config, config.default_folder if out is None else out, progress=progress).run()


def evaluate(
    run: LoadedRun | Path | str,
    data: Any,
    *,
    split: str | None = None,
    metrics: Sequence[str] | None = None,
    group_by: str | None = None,
    batch_size: int = BATCH_SIZE,
    format: str | None = None,  # noqa: A002
) -> Evaluation:
    """Score a trained run on a split of a prepared data set, or on raw rows with labels: see `LoadedRun.evaluate`.

    run: the folder of a run, of a checkpoint or a pack, at its best checkpoint; or what `load_run` returned.
    """
    options: dict[str, Any] = {"split": split, "metrics": metrics, "group_by": group_by, "batch_size": batch_size}
    return _loaded(run).evaluate(data, format=format, **options)


def predict(
    run: LoadedRun | Path | str,
    rows: Any,
    *,
    split: str | None = None,
    batch_size: int = BATCH_SIZE,
    format: str | None = None,  # noqa: A002
    progress: bool = False,
) -> np.ndarray:
    """The probabilities of raw rows by a trained run, or of a split of a prepared data set: see `LoadedRun.predict`.

    run: the folder of a run, of a checkpoint or a pack, at its best checkpoint; or what `load_run` returned.
    """
    return _loaded(run).predict(rows, split=split, batch_size=batch_size, format=format, progress=progress)


def _loaded(run: LoadedRun | Path | str) -> LoadedRun:
    return run if isinstance(run, LoadedRun) else load_run(run)
