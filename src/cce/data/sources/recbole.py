"""RecBole's atomic files: `NAME.inter`, lines of interactions with tabs between them, under a header with types.

Zhao et al., "RecBole: towards a unified, comprehensive and efficient framework for recommendation algorithms" (CIKM
2021). A column is named `item_id:token`; types are token, token_seq, float and float_seq. Files of users and items
(`.user`, `.item`) are not joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cce.checks import check_choice
from cce.data.preparation.job import Columns, Job, Reading, Splitting
from cce.data.raw_files import Input
from cce.data.sources.registry import Option, Source

TYPES = ("token", "token_seq", "float", "float_seq")
LABELS = ("label", "rating")  # that are looked for
ENDING = ".inter"


def recbole_job(raw: Path, options: Mapping[str, Any]) -> Job:
    """The job of an .inter file, or of the folder that holds one."""
    input_ = Input(_inter_file(raw))
    input_.check()
    header = input_.header("\t")
    types = _types(input_, header)
    names = tuple(types)
    label = _label(input_, types, options.get("label"))
    timestamp = options.get("timestamp") or ("timestamp" if "timestamp" in types else None)
    features = {name: kind for name, kind in types.items() if name not in (label, timestamp)}
    columns = Columns(
        label=label,
        categorical=_of_type(features, "token"),
        dense=_of_type(features, "float"),
        multi_hot=_of_type(features, "token_seq"),
        timestamp=timestamp,
    )
    reading = Reading(names=names, delimiter="\t", has_header=True, separator=" ", threshold=options.get("threshold"))
    return Job(RECBOLE.name, (input_,), columns, reading, Splitting("random"))


def _inter_file(raw: Path) -> Path:
    if not raw.is_dir():
        return raw
    found = sorted(path for path in raw.iterdir() if path.name.removesuffix(".gz").endswith(ENDING))
    if len(found) != 1:
        raise FileNotFoundError(f"{raw} must hold one file that ends in {ENDING}, got {len(found)}.")
    return found[0]


def _types(input_: Input, header: tuple[str, ...]) -> dict[str, str]:
    """The type of each column by name."""
    types = {}
    for column in header:
        name, colon, kind = column.rpartition(":")
        if not colon:
            raise ValueError(f"columns of {input_} must be named NAME:TYPE, such as item_id:token, got {column!r}.")
        check_choice(f"type of column {name!r} of {input_}", kind, TYPES)
        types[name] = kind
    return types


def _label(input_: Input, types: Mapping[str, str], given: str | None) -> str:
    label = given or next((name for name in LABELS if name in types), None)
    if label is None or label not in types:
        wanted = repr(given) if given else " or ".join(map(repr, LABELS))
        raise ValueError(f"{input_} must have a column {wanted}; it has {', '.join(types)}: give label.")
    return label


def _of_type(features: Mapping[str, str], kind: str) -> tuple[str, ...]:
    return tuple(name for name, found in features.items() if found == kind)


RECBOLE = Source(
    name="recbole",
    about="an atomic file of RecBole, NAME.inter, or the folder that holds it",
    example="cce prepare recbole ml-100k/ml-100k.inter runs/ml100k --threshold 4 --split temporal",
    splits=("random", "temporal", "order"),
    default_split="random",
    make=recbole_job,
    reuse=lambda raw, columns, reading: recbole_job(raw, {"label": columns.label, "threshold": reading.threshold}),
    options=(
        Option("label", "the column to predict (default: label, or rating)", metavar="COLUMN"),
        Option("threshold", "labels from here on are 1, and below 0", type=float),
        Option("timestamp", "the column to split by time (default: timestamp)", metavar="COLUMN"),
    ),
)
