"""RecBole's atomic files: `NAME.inter`, lines of interactions with tabs between them, under a header with types.

Zhao et al., "RecBole: towards a unified, comprehensive and efficient framework for recommendation algorithms" (CIKM
2021). A column is named `item_id:token`; types are token, token_seq, float and float_seq. Files of users and items
(`.user`, `.item`) are not joined.
"""

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
    input_ = Input(_inter_file(raw))
    input_.check()
    types = {}  # of each column by name
    for column in input_.header("\t"):
        name, colon, kind = column.rpartition(":")
        if not colon:
            raise ValueError(f"columns of {input_} must be named NAME:TYPE, such as item_id:token, got {column!r}.")
        check_choice(f"type of column {name!r} of {input_}", kind, TYPES)
        types[name] = kind
    given = options.get("label")
    label = given or next((name for name in LABELS if name in types), None)
    if label is None or label not in types:
        wanted = repr(given) if given else " or ".join(map(repr, LABELS))
        raise ValueError(f"{input_} must have a column {wanted}; it has {', '.join(types)}: give label.")
    timestamp = options.get("timestamp") or ("timestamp" if "timestamp" in types else None)
    features = [(name, kind) for name, kind in types.items() if name not in (label, timestamp)]
    columns = Columns(
        label=label,
        categorical=tuple(name for name, kind in features if kind == "token"),
        dense=tuple(name for name, kind in features if kind == "float"),
        multi_hot=tuple(name for name, kind in features if kind == "token_seq"),
        timestamp=timestamp,
    )
    threshold = options.get("threshold")
    reading = Reading(names=tuple(types), delimiter="\t", has_header=True, separator=" ", threshold=threshold)
    return Job(RECBOLE.name, (input_,), columns, reading, Splitting("random"))


def _inter_file(raw: Path) -> Path:
    if not raw.is_dir():
        return raw
    found = sorted(path for path in raw.iterdir() if path.name.removesuffix(".gz").endswith(ENDING))
    if len(found) != 1:
        raise FileNotFoundError(f"{raw} must hold one file that ends in {ENDING}, got {len(found)}.")
    return found[0]


RECBOLE = Source(
    name="recbole",
    about="an atomic file of RecBole, NAME.inter, or the folder that holds it",
    splits=("random", "temporal", "order"),
    make=recbole_job,
    options=(
        Option("label", "column to predict: 0 or 1, or see --threshold (recbole: label or rating)", metavar="COLUMN"),
        Option("threshold", "labels of at least this value become 1, smaller ones 0", type=float),
        Option("timestamp", "column to split by time: numbers, or ISO 8601 (recbole: timestamp)", metavar="COLUMN"),
    ),
)
