"""New raw rows in the terms of an old data set: its columns, its vocabulary, its ids."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cce.checks import check_choice
from cce.data.criteo_kaggle import criteo_kaggle
from cce.data.criteo_terabyte import criteo_terabyte
from cce.data.manifest import MANIFEST, check_files, read_manifest
from cce.data.movielens import movielens
from cce.data.spec import Columns, Reading
from cce.data.split import Splitting
from cce.data.table import table

if TYPE_CHECKING:
    from pathlib import Path

    from cce.data.pipeline import Job


KINDS = ("criteo-kaggle", "criteo-terabyte", "movielens", "table")


def like(dataset: Path, raw: Path, *, max_bad_rows: int = 0) -> Job:
    """The job of raw rows of the same kind as `dataset`. All of them are kept, and all are in the split `test`."""
    manifest = read_manifest(dataset)
    check_files(dataset, manifest)
    kind, options = manifest["kind"], manifest.get("options", {})
    if kind == "synthetic":
        raise ValueError(f"{dataset} must have been made from raw rows, got a synthetic data set.")
    try:
        columns, reading = Columns(**_tuples(options["columns"])), Reading(**_tuples(options["reading"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"options of {dataset / MANIFEST} must be as `cce prepare` wrote them, got {error}."
        ) from error
    none = Splitting("none")
    if kind == "criteo-kaggle":
        job = criteo_kaggle(raw, splitting=none)
    elif kind == "criteo-terabyte":
        job = criteo_terabyte(raw, modulus=reading.modulus, splitting=none)
    elif kind == "movielens":
        job = movielens(raw, splitting=none)
    else:
        check_choice(f"kind of {dataset / MANIFEST}", kind, KINDS)
        job = table(raw, replace(columns, group=None, timestamp=None), reading=reading, splitting=none)
    return replace(job, like=dataset, max_bad_rows=max_bad_rows)


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists where there were tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
