"""What the columns of a table mean, from the words that are typed for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cce.data.prepare.columns import TRANSFORMS, Columns, Reading

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ALL = "*"


def read_columns(names: Sequence[str], options: Mapping[str, Any]) -> tuple[Columns, Reading]:
    """The columns of a file with these names, and how their values are read."""
    dense, transforms, bins = _dense(names, options.get("dense", ()))
    columns = Columns(
        label=options["label"],
        categorical=(*_categorical(names, options, dense), *(name for name, _ in bins)),
        dense=tuple(name for name in dense if name not in dict(bins)),
        multi_hot=options.get("multi_hot", ()),
        weight=options.get("weight"),
        timestamp=options.get("timestamp"),
        shared=tuple(_pair(text) for text in options.get("share_ids", ())),
    )
    reading = Reading(
        missing=("", *options.get("missing", ())),
        separator=options.get("separator", "|"),
        threshold=options.get("threshold"),
        max_length=options.get("max_length"),
        transforms=transforms,
        bins=bins,
    )
    return columns, reading


def _categorical(names: Sequence[str], options: Mapping[str, Any], dense: Sequence[str]) -> tuple[str, ...]:
    given, dropped = options.get("categorical", ()), options.get("drop", ())
    for name in dropped:
        if name not in names:
            raise ValueError(f"drop must name columns of the file, {', '.join(names)}; got {name!r}.")
    if given != (ALL,):
        if dropped:
            raise ValueError(f"drop goes with categorical '*', which takes all other columns; got {dropped[0]!r}.")
        return tuple(given)
    others = ("label", "weight", "timestamp", "split_column")
    taken = {*dense, *options.get("multi_hot", ()), *dropped, *(options.get(role) for role in others)}
    return tuple(name for name in names if name not in taken)


def _dense(
    names: Sequence[str], given: Sequence[str]
) -> tuple[list[str], tuple[tuple[str, str], ...], tuple[tuple[str, int], ...]]:
    """Names of all numeric columns, transforms of some, and how many bins others are cut into."""
    dense, transforms, bins = [], [], []
    for text in given:
        name, colon, how = text.rpartition(":")
        if not colon or (text in names and how not in TRANSFORMS):
            dense.append(text)
            continue
        dense.append(name)
        if how in TRANSFORMS:
            transforms.append((name, how))
        elif how.startswith("bins=") and how[5:].isdigit():
            bins.append((name, int(how[5:])))
        else:
            raise ValueError(f"dense must be NAME or NAME:{'|'.join(TRANSFORMS)}|bins=32, got {text!r}.")
    return dense, tuple(transforms), tuple(bins)


def _pair(text: str) -> tuple[str, str]:
    name, equals, other = text.partition("=")
    if not equals or not name or not other:
        raise ValueError(f"share_ids must have the form COLUMN=OTHER, got {text!r}.")
    return name, other
