"""`prepare` makes a data set of raw logs: a folder with a manifest and the rows of its splits. How often ids occur in
them; and whether all files are those of the manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cce.checks import check_choice
from cce.data.raw_files import check_pyarrow
from cce.data.record_format import (
    checksum,
    id_dtype,
    map_file,
    read_manifest,
    record_dtype,
    rows_file,
    split_files,
    values_file,
)
from cce.data.sources import SOURCES
from cce.schema import Schema
from cce.workers import open_engine

if TYPE_CHECKING:
    from cce.data.loader import Loader, SplitRows


@dataclass(frozen=True)
class PreparedData:
    """A data set that `cce prepare` wrote; `PreparedData.open(path)` reads it."""

    path: Path
    schema: Schema
    manifest: dict[str, Any]
    _unverified: set[str] = field(default_factory=set, repr=False, compare=False)  # splits

    @classmethod
    def open(cls, path: Path | str, *, verify: bool = True) -> PreparedData:
        """The data set in a folder; rejected with the name of the file if one is missing or truncated.

        verify: compare the files of a split with their checksums before its rows are first used.
        """
        folder = Path(path)
        manifest = read_manifest(folder)
        for problem in find_problems(folder, manifest, manifest["files"], reads=False):
            raise ValueError(problem)
        unverified = set(manifest["splits"]) if verify else set()
        return cls(folder, Schema.from_dict(manifest["schema"]), manifest, unverified)

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits: `train`, `validation`, `test`."""
        return tuple(self.manifest["splits"])

    def num_rows(self, split: str) -> int:
        """Rows of a split."""
        check_choice("split", split, self.splits)
        return int(self.manifest["splits"][split])

    def rows(self, split: str) -> SplitRows:
        """The rows of a split, by index."""
        check_choice("split", split, self.splits)
        self._verify(split)
        from cce.data.loader import SplitRows  # it needs torch, which preparing does without

        return SplitRows(self.path, split, self.schema)

    def loader(
        self, split: str, *, batch_size: int, shuffle: bool = True, seed: int = 0, rank: int = 0, world_size: int = 1
    ) -> Loader:
        """The batches of a split; `batch_size` is that of all ranks together."""
        from cce.data.loader import Loader

        where = {"rank": rank, "world_size": world_size}
        return Loader(self.rows(split), batch_size=batch_size, shuffle=shuffle, seed=seed, **where)

    def count_ids(self, split: str, name: str) -> np.ndarray:
        """How often each id of a feature occurs in a split, int32."""
        check_choice("split", split, self.splits)
        self._verify(split)
        index, feature = next((i, each) for i, each in enumerate(self.schema.features) if each.name == name)
        if feature.multi_hot:
            ids = map_file(self.path / values_file(split, index), id_dtype(feature.num_embeddings))
        else:
            ids = map_file(self.path / rows_file(split), record_dtype(self.schema))[f"id{index}"]
        counts = np.zeros(feature.num_embeddings or 0, np.int32)
        for start in range(0, len(ids), COUNTED):
            np.add.at(counts, ids[start : start + COUNTED], np.int32(1))
        return counts

    def verify_first(self) -> None:
        """Verify now what `open` promised to verify when it is first used, and the vocabularies."""
        if self._unverified:
            of_splits = {name for split in self.splits for name in split_files(self.schema, split)}
            self._check(name for name in self.manifest["files"] if name not in of_splits)
        for split in self.splits:
            self._verify(split)

    def _verify(self, split: str) -> None:
        if split in self._unverified:
            self._check(split_files(self.schema, split))
            self._unverified.remove(split)

    def _check(self, names: Iterable[str]) -> None:
        for problem in find_problems(self.path, self.manifest, names):
            raise ValueError(problem)


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
    hash_ids: ids are hashes of this many bits, and nothing is counted. With open=True ids are 64-bit hashes, for
        tables without a bound.
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


COUNTED = 1 << 16  # ids at a time
MANY = 0.2  # of the occurrences of a feature: what a model is scored on is then largely what it has never seen


def unseen_shares(data: PreparedData, *, least: Mapping[str, int] | None = None) -> dict[str, dict[str, float]]:
    """By split and feature, the share of occurrences of ids that training rows have fewer than `least` times.

    Id 0, which stands for values that are not in the vocabulary, always counts as unseen.
    least: by feature; 1 for others, which is: ids that training rows do not have.
    """
    found: dict[str, dict[str, float]] = {split: {} for split in data.splits}
    for name in (name for name, size in data.schema.vocabulary_sizes.items() if size is not None):
        seen = data.count_ids("train", name)
        is_rare = seen < (least or {}).get(name, 1)
        is_rare[0] = True
        for split, shares in found.items():
            own = seen if split == "train" else data.count_ids(split, name)
            shares[name] = float(own[is_rare].sum() / max(1, own.sum()))
    return found


def unseen_lines(shares: Mapping[str, Mapping[str, float]], what: str = "unseen in training") -> list[str]:
    """A line with the mean share of each split, and a warning for each held-out split with many in some feature."""
    means = {split: sum(own.values()) / len(own) for split, own in shares.items() if own}
    if not means:  # no feature has a bound, and nothing was counted
        return []
    lines = [f"occurrences {what}: " + ", ".join(f"{split} {share:.1%}" for split, share in means.items())]
    for split, own in shares.items():
        many = [f"{name} {share:.0%}" for name, share in own.items() if share > MANY]
        if many and split != "train":
            lines.append(f"warning: more than {MANY:.0%} of {split} is {what}, by feature: {', '.join(many)}")
    return lines


# -- verification ------------------------------------------------------------------------------------------------------


@dataclass
class Verification:
    """What was checked, and its problems, one line each."""

    kind: str  # of folder: data, run
    path: str
    checked: dict[str, int] = field(default_factory=dict)  # how many files, bytes, rows, …
    problems: list[str] = field(default_factory=list)


def verify_data(folder: Path) -> Verification:
    """Read all of a data set. A manifest that cannot be read is an error; everything else is a problem."""
    manifest = read_manifest(folder)
    files = manifest["files"]
    checked = {
        "files": len(files),
        "bytes": sum(file["bytes"] for file in files.values()),
        "rows": sum(manifest["splits"].values()),
    }
    return Verification("data", str(folder), checked, list(find_problems(folder, manifest, files)))


def find_problems(
    folder: Path, manifest: Mapping[str, Any], names: Iterable[str], *, reads: bool = True
) -> Iterator[str]:
    """A line for each of these files that is missing or damaged; reads: compare checksums, and not sizes alone."""
    for name in names:
        path, entry = folder / name, manifest["files"][name]
        if not path.is_file():
            yield f"{path} must be there, and it is missing."
        elif path.stat().st_size != entry["bytes"]:
            yield f"{path} must have {entry['bytes']} bytes, got {path.stat().st_size}."
        elif reads and (digest := checksum(path)) != entry["sha256"]:
            yield f"{path} must have the SHA-256 {entry['sha256']}, got {digest}: it was damaged or changed."
