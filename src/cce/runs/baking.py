"""`bake_data`: the data set of a run, with the pointers that the run has learned in place of ids."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cce.collection import bake_schema, find_words
from cce.data import PreparedData, checksum, prepare_baked
from cce.runs.calibrating import data_of
from cce.runs.pack import MODEL, Pack
from cce.training import table_options

if TYPE_CHECKING:
    from cce.runs.loaded import LoadedRun


def bake_data(
    run: LoadedRun, out: Path | str, *, data: Path | str | None = None, progress: bool = False
) -> dict[str, Any]:
    """Write the baked data set to the folder `out`, and return its manifest, which has the checksum of the run's model.

    data: another data set with the columns and ids of the run's, such as one made with `--reuse-vocabulary`.
    """
    if run.schema.is_baked:
        raise ValueError(f"run must take ids to bake its data, got {str(run.path)!r}, which takes pointers.")
    prepared = PreparedData.open(data_of(run, None) if data is None else data)
    if prepared.schema != run.schema:
        raise ValueError(
            f"data must have the columns and ids that the run was trained on, but {prepared.path} has others."
        )
    schema = bake_schema(run.model, run.schema)

    def words(index: int, ids: np.ndarray) -> np.ndarray:
        return find_words(run.model, schema, index, torch.from_numpy(ids.astype(np.int64))).numpy()

    about = {"step": run.step, "sha256": _model_checksum(run), "options": table_options(run.config)}
    return prepare_baked(prepared, Path(out), schema, words, run=about, progress=progress)


def _model_checksum(run: LoadedRun) -> str:
    if isinstance(run.source, Pack):
        return str(run.source.manifest["files"][MODEL]["sha256"])
    return checksum(run.path / MODEL)
