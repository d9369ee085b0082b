"""The public CTR benchmarks of reczoo: a folder with train.csv, valid.csv and test.csv, or what FuxiCTR made of it.

Columns, derived columns and minimal counts are those of the published settings: Zhu et al., "Open benchmarking for
click-through rate prediction" (CIKM 2021); https://github.com/reczoo/Datasets.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cce.data.preparation.job import Columns, Job, Reading, Splitting, VocabularyRule
from cce.data.raw_files import Input, find_inputs, read_names
from cce.data.sources.registry import Source

INTEGERS = tuple(f"I{index}" for index in range(1, 14))
WORDS = tuple(f"C{index}" for index in range(1, 27))
AVAZU = (
    *("C1", "banner_pos", "site_id", "site_domain", "site_category", "app_id", "app_domain", "app_category"),
    *("device_id", "device_ip", "device_model", "device_type", "device_conn_type"),
    *(f"C{index}" for index in range(14, 22)),
)


@dataclass(frozen=True)
class PublicSet:
    """One data set: its files, and what its published setting makes of their columns."""

    name: str
    label: str
    categorical: tuple[str, ...]
    dense: tuple[str, ...] = ()
    multi_hot: tuple[str, ...] = ()
    derived: tuple[tuple[str, str, str], ...] = ()
    shared: tuple[tuple[str, str], ...] = ()
    min_count: int = 1
    max_length: int | None = None
    has_validation: bool = True  # without, published runs take the test rows

    @property
    def files(self) -> tuple[str, str, str]:
        """Of training, validation and test."""
        return ("train.csv", "valid.csv" if self.has_validation else "test.csv", "test.csv")

    @property
    def columns(self) -> set[str]:
        """The columns that are read."""
        made_of = {name: column for name, column, _ in self.derived}
        features = (*self.categorical, *self.multi_hot)
        return {self.label, *self.dense, *(made_of.get(name, name) for name in features)}


PUBLIC_SETS = (
    PublicSet(
        name="Criteo_x1",
        label="label",
        categorical=WORDS,
        dense=INTEGERS,
    ),
    PublicSet(
        name="Criteo_x4",  # setting 001
        label="Label",
        categorical=(*INTEGERS, *WORDS),
        derived=tuple((name, name, "log-squared") for name in INTEGERS),
        min_count=10,
    ),
    PublicSet(
        name="Avazu_x4",  # setting 001
        label="click",
        categorical=("hour", *AVAZU, "weekday", "weekend"),
        derived=(("hour", "hour", "hour"), ("weekday", "hour", "weekday"), ("weekend", "hour", "weekend")),
        min_count=2,
    ),
    PublicSet(
        name="KuaiVideo_x1",
        label="is_click",
        categorical=("user_id", "item_id"),
        multi_hot=("pos_items", "neg_items"),
        shared=(("pos_items", "item_id"), ("neg_items", "item_id")),
        min_count=10,
        max_length=100,
        has_validation=False,
    ),
    PublicSet(
        name="MicroVideo1.7M_x1",
        label="is_click",
        categorical=("user_id", "item_id", "cate_id"),
        multi_hot=("clicked_items", "clicked_categories"),
        shared=(("clicked_items", "item_id"), ("clicked_categories", "cate_id")),
        max_length=100,
        has_validation=False,
    ),
    PublicSet(
        name="AmazonElectronics_x1",
        label="label",
        categorical=("item_id", "cate_id"),  # the user is for grouped scores only
        multi_hot=("item_history", "cate_history"),
        shared=(("item_history", "item_id"), ("cate_history", "cate_id")),
        max_length=100,
        has_validation=False,
    ),
)


def find_public_set(header: tuple[str, ...]) -> PublicSet | None:
    """The data set whose columns are among these."""
    return next((each for each in PUBLIC_SETS if each.columns <= set(header)), None)


FEATURE_MAP = "feature_map.json"
PADDING = "0"  # the id that no value has


def read_feature_map(path: Path) -> tuple[Columns, Reading]:
    """The columns of encoded rows. Their ids are values here, and numbered again by count; padding is missing."""
    try:
        values = json.loads(path.read_bytes())
        features = {name: spec for each in values["features"] for name, spec in each.items()}
        label = values["labels"][0]
        kinds = {name: spec["type"] for name, spec in features.items()}
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{path} must be a feature map of FuxiCTR, and it is not: {error!r}.") from error
    columns = Columns(
        label=label,
        categorical=_of_kind(kinds, "categorical"),
        dense=_of_kind(kinds, "numeric"),
        multi_hot=_of_kind(kinds, "sequence"),
        shared=_shared(features, kinds),
    )
    return columns, Reading(missing=("", PADDING), transforms=tuple((name, "identity") for name in columns.dense))


def _of_kind(kinds: dict[str, str], kind: str) -> tuple[str, ...]:
    return tuple(name for name, found in kinds.items() if found == kind)


def _shared(features: dict[str, Any], kinds: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Sequences with the ids of another column; columns of other kinds, such as metadata, are not read."""
    pairs = ((name, spec.get("share_embedding")) for name, spec in features.items())
    used = ("categorical", "sequence")
    return tuple((name, other) for name, other in pairs if other and {kinds[name], kinds.get(other)} <= set(used))


SPLITS = ("train", "validation", "test")
CACHED = {"train": ("train",), "validation": ("valid", "test"), "test": ("test",)}  # names of splits in a cache


def reczoo_job(folder: Path) -> Job:
    """The job of a folder of one of the public data sets, or of a cache of FuxiCTR with a feature map."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} must be a folder with train.csv and test.csv, or with {FEATURE_MAP}.")
    return _cached_job(folder) if (folder / FEATURE_MAP).is_file() else _csv_job(folder)


def _csv_job(folder: Path) -> Job:
    train = Input(folder / "train.csv")
    train.check()
    names = train.header(",")
    public = find_public_set(names)
    if public is None:
        known = ", ".join(each.name for each in PUBLIC_SETS)
        raise ValueError(f"{train} must have the columns of one of {known}; it has {', '.join(names)}.")
    inputs = tuple(Input(folder / name) for name in public.files)
    read_names(inputs)
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


def _cached_job(folder: Path) -> Job:
    columns, reading = read_feature_map(folder / FEATURE_MAP)
    groups = [_cached_inputs(folder, split) for split in SPLITS]
    inputs = tuple(each for group in groups for each in group)
    names, _ = read_names(inputs)
    of_files = tuple(split for split, group in zip(SPLITS, groups, strict=True) for _ in group)
    reading = Reading(names=names, delimiter="", missing=reading.missing, transforms=reading.transforms)
    return Job(RECZOO.name, inputs, columns, reading, Splitting("files", of_files=of_files))


def _cached_inputs(folder: Path, split: str) -> tuple[Input, ...]:
    """`train.parquet`, or the part files of a folder `train`; without a `valid`, the test."""
    candidates = [folder / each for name in CACHED[split] for each in (f"{name}.parquet", name)]
    path = next((path for path in candidates if path.is_file() or any(path.rglob("*.parquet"))), None)
    if path is None:
        raise FileNotFoundError(f"{folder} must hold {split} rows as Parquet (HDF5 is not read), and there is none.")
    return find_inputs(path)


def _reuse(raw: Path, columns: Columns, reading: Reading) -> Job:
    inputs = find_inputs(raw)
    names, _ = read_names(inputs)
    if names != tuple(reading.names):
        raise ValueError(f"{inputs[0]} must have the columns of the data set, {', '.join(reading.names)}.")
    return Job(RECZOO.name, inputs, columns, reading)


RECZOO = Source(
    name="reczoo",
    about="a folder of a public CTR benchmark (" + ", ".join(each.name for each in PUBLIC_SETS) + "), or a cache "
    "with feature_map.json",
    example="cce prepare reczoo Criteo_x1 runs/criteo_x1\n"
    "  cce prepare reczoo Criteo_x4 runs/criteo_x4_002 --min-count 2",
    splits=("files",),
    default_split="as published: the files of the folder",
    make=lambda raw, _options: reczoo_job(raw),
    reuse=_reuse,
)
