"""`prepare`: raw logs → a data set that trains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from cce.checks import check_choice
from cce.data.prepared import PreparedData
from cce.data.raw_files import check_pyarrow
from cce.data.sources import SOURCES
from cce.workers import open_engine


def prepare(
    raw: Path | str | None,
    out: Path | str,
    *,
    kind: str = "table",
    split: str | None = None,
    validation: float | None = None,
    test: float | None = None,
    seed: int | None = None,
    min_count: int | None = None,
    vocabulary_from: str | None = None,
    hash_ids: int | None = None,
    max_bad_rows: int | None = None,
    jobs: int | None = None,
    engine: str | None = None,
    progress: bool = True,
    **options: Any,
) -> PreparedData:
    """Prepare raw data in the new folder `out`, and open it. An interrupted preparation resumes when called again.

    raw: a file or a folder; None for "synthetic".
    kind: the source, one of `cce list sources`, or "synthetic", whose options are those of `SyntheticConfig`.
    split, validation, test, seed: how rows are held out; `cce prepare --help` shows the ways of a source.
    min_count: values that occur less often in training rows are unseen. vocabulary_from: "train" or "all" rows.
    hash_ids: ids are hashes of this many bits, and nothing is counted.
    max_bad_rows: malformed rows that are left out and reported; more, by default any, are an error.
    jobs, engine: processes; "local" (the default), "ray" or "ray://host:port".
    options: those of the source, such as `label="click", categorical=["user", "item"]`.
    """
    check_choice("kind", kind, (*SOURCES, "synthetic"))
    target = Path(out)
    given = {"split": split, "validation": validation, "test": test, "seed": seed, "min_count": min_count}
    given |= {"vocabulary_from": vocabulary_from, "hash_ids": hash_ids, **options}
    work = {"max_bad_rows": max_bad_rows, "jobs": jobs, "engine": engine}
    if kind == "synthetic":
        from cce.data.synthetic import SyntheticConfig, prepare_synthetic

        config = SyntheticConfig.of({"raw": raw} | given | work)
        prepare_synthetic(target, config, progress=progress)
        return PreparedData.open(target)
    check_pyarrow()
    from cce.data.preparation.pipeline import prepare_data

    job = SOURCES[kind].job(None if raw is None else Path(raw), given)
    job = replace(job, max_bad_rows=max_bad_rows or 0)
    count = job.useful_jobs() if jobs is None and engine in (None, "local") else jobs
    with open_engine(engine or "local", count) as workers:
        prepare_data(job, target, engine=workers, progress=progress)
    return PreparedData.open(target)
