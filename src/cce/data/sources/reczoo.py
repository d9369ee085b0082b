"""The public CTR benchmarks of reczoo: a folder with train.csv, valid.csv and test.csv, or what FuxiCTR made of it.

Columns, derived columns and minimal counts are those of the published settings (`reczoo_sets.py`).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from cce.data.prepare.columns import Columns, Reading
from cce.data.prepare.inputs import Input
from cce.data.prepare.job import Job, Splitting, VocabularyRule
from cce.data.sources.feature_map import FEATURE_MAP, read_feature_map
from cce.data.sources.reczoo_sets import PUBLIC_SETS, PublicSet, find_public_set
from cce.data.sources.registry import Option, Source
from cce.data.sources.table_files import find_inputs, read_header

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SPLITS = ("train", "validation", "test")
CACHED = {"train": ("train",), "validation": ("valid", "test"), "test": ("test",)}  # names of splits in a cache


def reczoo_job(folder: Path, *, check_md5: bool = True) -> Job:
    """The job of a folder of one of the public data sets, or of a cache of FuxiCTR with a feature map."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} must be a folder with train.csv and test.csv, or with {FEATURE_MAP}.")
    return _cached_job(folder) if (folder / FEATURE_MAP).is_file() else _csv_job(folder, check_md5=check_md5)


def _csv_job(folder: Path, *, check_md5: bool) -> Job:
    train = Input(folder / "train.csv")
    train.check()
    names = train.header(",")
    public = find_public_set(names)
    if public is None:
        known = ", ".join(each.name for each in PUBLIC_SETS)
        raise ValueError(f"{train} must have the columns of one of {known}; it has {', '.join(names)}.")
    inputs = tuple(Input(folder / name) for name in public.files)
    read_header(inputs, "csv")
    if check_md5:
        _check_md5(folder, public)
    return Job(
        RECZOO.name,
        inputs,
        _columns(public),
        _reading(public, names),
        Splitting("files", of_files=SPLITS),
        rule=VocabularyRule(public.min_count),
    )


def _columns(public: PublicSet) -> Columns:
    return Columns(
        label=public.label,
        categorical=public.categorical,
        dense=public.dense,
        multi_hot=public.multi_hot,
        derived=public.derived,
        shared=public.shared,
    )


def _reading(public: PublicSet, names: tuple[str, ...]) -> Reading:
    return Reading(
        names=names,
        delimiter=",",
        quoted=True,
        has_header=True,
        separator="^",
        max_length=public.max_length,
        transforms=tuple((name, "identity") for name in public.dense),
    )


def _check_md5(folder: Path, public: PublicSet) -> None:
    """Reject files that are not those that were published."""
    for name, wanted in public.md5.items():
        with (folder / name).open("rb") as file:
            found = hashlib.file_digest(file, "md5").hexdigest()
        if found != wanted:
            raise ValueError(
                f"{folder / name} must have the MD5 sum {wanted} of {public.name}, got {found}: it was cut short or "
                "changed; no_md5 takes it as it is."
            )


def _cached_job(folder: Path) -> Job:
    columns, reading = read_feature_map(folder / FEATURE_MAP)
    groups = [_cached_inputs(folder, split) for split in SPLITS]
    inputs = tuple(each for group in groups for each in group)
    names = read_header(inputs, "parquet").names
    of_files = tuple(split for split, group in zip(SPLITS, groups, strict=True) for _ in group)
    reading = Reading(names=names, delimiter="", missing=reading.missing, transforms=reading.transforms)
    return Job(RECZOO.name, inputs, columns, reading, Splitting("files", of_files=of_files))


def _cached_inputs(folder: Path, split: str) -> tuple[Input, ...]:
    """`train.parquet`, or the part files of a folder `train`; without a `valid`, the test."""
    candidates = [folder / each for name in CACHED[split] for each in (f"{name}.parquet", name)]
    path = next((path for path in candidates if path.is_file() or any(path.rglob("*.parquet"))), None)
    if path is None:
        raise FileNotFoundError(f"{folder} must hold {split} rows as Parquet (HDF5 is not read), and there is none.")
    return find_inputs(path, None)


def _make(raw: Path, options: Mapping[str, Any]) -> Job:
    return reczoo_job(raw, check_md5=not options.get("no_md5"))


def _reuse(raw: Path, columns: Columns, reading: Reading) -> Job:
    inputs = find_inputs(raw, None)
    header = read_header(inputs, None)
    if header.names != tuple(reading.names):
        raise ValueError(f"{inputs[0]} must have the columns of the data set, {', '.join(reading.names)}.")
    return Job(RECZOO.name, inputs, columns, reading)


RECZOO = Source(
    name="reczoo",
    about="a folder of a public CTR benchmark (" + ", ".join(each.name for each in PUBLIC_SETS) + "), or a cache "
    "with feature_map.json",
    example="cce prepare reczoo Criteo_x1 runs/criteo_x1\n"
    "  cce prepare reczoo Criteo_x4 runs/criteo_x4_002 --min-count 2\n"
    "  cce prepare reczoo my-sample runs/sample --no-md5",
    splits=("files",),
    default_split="as published: the files of the folder",
    make=_make,
    reuse=_reuse,
    options=(Option("no_md5", "take files as they are, without comparing their MD5 sums", is_flag=True),),
)
