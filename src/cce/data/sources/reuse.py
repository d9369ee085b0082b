"""New raw rows in the terms of an old data set: its columns, its vocabularies, its ids."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cce.checks import check_choice
from cce.data.manifest import MANIFEST, check_files, read_manifest
from cce.data.prepare.columns import Columns, Reading
from cce.data.prepare.job import Splitting, VocabularyRule
from cce.data.sources import SOURCES

if TYPE_CHECKING:
    from pathlib import Path

    from cce.data.prepare.job import Job


def reuse_vocabulary(dataset: Path, raw: Path, *, max_bad_rows: int = 0) -> Job:
    """The job of raw rows of the same kind as `dataset`. All of them are used, and all are in the split `test`.

    They need no label: rows without are prepared without.
    """
    manifest = read_manifest(dataset)
    check_files(dataset, manifest)
    columns, reading = raw_options(dataset / MANIFEST, manifest)
    check_choice(f"kind of {dataset / MANIFEST}", manifest["kind"], SOURCES)
    job = _without_missing_label(SOURCES[manifest["kind"]].reuse(raw, columns, reading))
    rule = VocabularyRule(hash_bits=manifest["options"].get("rule", {}).get("hash_bits"))
    return replace(job, splitting=Splitting("none"), rule=rule, reuse_vocabulary=dataset, max_bad_rows=max_bad_rows)


def raw_options(path: Path, manifest: dict[str, Any]) -> tuple[Columns, Reading]:
    """The columns of the raw rows of a data set, and how they were read; `path` is that of the manifest."""
    if manifest["kind"] == "synthetic":
        raise ValueError(f"{path.parent} must have been made from raw rows, got a {manifest['kind']} data set.")
    options = manifest.get("options", {})
    try:
        return Columns(**_tuples(options["columns"])), Reading(**_tuples(options["reading"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"options of {path} must be as `cce prepare` wrote them, got {error}.") from error


def _without_missing_label(job: Job) -> Job:
    """The job itself, or without a label where the lines of its text have one column less than they would have."""
    names, label, first = job.reading.names, job.columns.label, job.inputs[0]
    if label is None or first.is_parquet or not first.path.is_file():
        return job
    if len(first.header(job.reading.delimiter)) != len(names) - 1:
        return job
    reading = replace(job.reading, names=tuple(name for name in names if name != label), drop_label=None)
    return replace(job, columns=replace(job.columns, label=None), reading=reading)


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists where there were tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
