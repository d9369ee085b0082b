"""`prepare`: raw logs → a data set that trains; or new raw rows with the columns and the ids of an old data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cce.checks import check_choice
from cce.data.preparation.job import Columns, Job, Reading, Splitting, VocabularyRule
from cce.data.prepared import PreparedData
from cce.data.raw_files import check_pyarrow
from cce.data.record_format import MANIFEST, check_files, read_manifest
from cce.data.sources import SOURCES
from cce.workers import open_engine


def prepare(
    raw: Path | str | None,
    out: Path | str,
    *,
    kind: str = "table",
    split: str | None = None,
    validation: float | Sequence[Path | str] | None = None,
    test: float | Sequence[Path | str] | None = None,
    seed: int | None = None,
    min_count: int | None = None,
    vocabulary_from: str | None = None,
    hash_ids: int | None = None,
    max_bad_rows: int = 0,
    reuse_vocabulary: Path | str | None = None,
    jobs: int | None = None,
    engine: str = "local",
    progress: bool = True,
    **options: Any,
) -> PreparedData:
    """Prepare raw data in the new folder `out`, and open it. An interrupted preparation resumes when called again.

    raw: a file or a folder; None where `kind` needs none, or where files are given with `train`.
    kind: the source, one of `cce list sources`, or "synthetic", whose options are those of `SyntheticConfig`.
    split, validation, test, seed: how rows are held out; `cce prepare KIND --help` shows the ways of a source.
    min_count: values that occur less often in training rows are unseen. vocabulary_from: "train" or "all" rows.
    hash_ids: ids are hashes of this many bits, and nothing is counted.
    max_bad_rows: malformed rows that are left out and reported; more are an error.
    reuse_vocabulary: a data set whose columns and ids new rows of the same kind get; `kind` and options are its own.
    jobs, engine: processes; "local", "ray" or "ray://host:port".
    options: those of the source, such as `label="click", categorical=["user", "item"]`.
    """
    target = Path(out)
    given = {"split": split, "validation": validation, "test": test, "seed": seed, "min_count": min_count}
    given |= {"vocabulary_from": vocabulary_from, "hash_ids": hash_ids, **options}
    given = {name: value for name, value in given.items() if value is not None}
    if kind == "synthetic":
        from cce.data.synthetic import SyntheticConfig, prepare_synthetic

        prepare_synthetic(target, SyntheticConfig.of(given), progress=progress)
        return PreparedData.open(target)
    check_pyarrow()
    from cce.data.preparation.pipeline import prepare_data

    job = _job(kind, raw, given, reuse_vocabulary, max_bad_rows)
    count = jobs if jobs is not None or engine != "local" else job.useful_jobs()
    with open_engine(engine, count) as workers:
        prepare_data(job, target, engine=workers, progress=progress)
    return PreparedData.open(target)


def _job(kind: str, raw: Path | str | None, given: dict[str, Any], reuse: Path | str | None, max_bad_rows: int) -> Job:
    path = None if raw is None else Path(raw)
    if reuse is None:
        check_choice("kind", kind, (*SOURCES, "synthetic"))
        return replace(SOURCES[kind].job(path, given), max_bad_rows=max_bad_rows)
    if given or path is None:
        wrong = next(iter(given), "raw")
        raise ValueError(f"reuse_vocabulary takes raw rows and no other options, got {wrong}={given.get(wrong)!r}.")
    return reuse_job(Path(reuse), path, max_bad_rows=max_bad_rows)


def reuse_job(dataset: Path, raw: Path, *, max_bad_rows: int = 0) -> Job:
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
