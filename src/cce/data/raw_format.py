"""What a file of raw rows is: its format by name or ending, and how its lines are read by the first of them."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cce.checks import check_choice
from cce.text import install_hint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cce.data.prepare.columns import Reading

STANDARD = "-"  # standard input, or output
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


@dataclass(frozen=True)
class FileFormat:
    """A format of raw rows."""

    endings: tuple[str, ...]  # of names of files
    delimiter: str = ""  # between the fields of a line of text
    is_json: bool = False  # an object a line
    by_columns: bool = False  # it is read by columns, not by lines


FORMATS = {
    "csv": FileFormat((".csv",), ","),
    "tsv": FileFormat((".tsv", ".txt"), "\t"),
    "jsonl": FileFormat((".jsonl", ".ndjson"), is_json=True),
    "parquet": FileFormat((".parquet", ".pq"), by_columns=True),
}
ENDINGS = {ending: name for name, each in FORMATS.items() for ending in each.endings}


def check_pyarrow() -> None:
    """Reject a machine without pyarrow, and say how to get it."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ValueError(f"raw data is read with pyarrow: {install_hint('data')}.")


def find_format(path: str | Path, given: str | None = None, *, default: str | None = None) -> str:
    """The format that is given, or that the end of a name says, apart from what it is compressed by."""
    if given is not None:
        check_choice("format", given, FORMATS)
        return given
    path = Path(path)
    ending = path.with_suffix("").suffix if path.suffix in COMPRESSED else path.suffix
    if ending in ENDINGS:
        return ENDINGS[ending]
    if default is None:
        what = "standard input and output need a format" if str(path) == STANDARD else f"{path} must end in one"
        raise ValueError(f"{what} of {', '.join(FORMATS if str(path) == STANDARD else ENDINGS)}: give --format.")
    return default


def text_reading(
    first_line: bytes, delimiter: str, wanted: Iterable[str], reading: Reading, *, label: str | None, has_names: bool
) -> Reading:
    """How lines of text are read: by the names in the first line, or as those of the data set, where it had no names.

    label: the column that lines may lack.
    """
    names, used = _fields(first_line, delimiter), tuple(wanted)
    if has_names or set(used) <= set(names):
        check_columns("it", used, names)
        return replace(reading, names=names, delimiter=delimiter, quoted=True, has_header=True)
    without = tuple(name for name in reading.names if name != label)
    count = len(_fields(first_line, reading.delimiter))
    known = next((known for known in (reading.names, without) if len(known) == count), None)
    if known is None:
        sizes = f"{len(reading.names)} columns, or {len(without)} without a label"
        raise ValueError(
            f"it must have a first line with the names {', '.join(used)}, or lines of {sizes}, got {count}."
        )
    check_columns("it", used, known)
    return replace(reading, names=known)


def check_columns(what: str, wanted: Iterable[str], names: Sequence[str]) -> None:
    """Reject rows without one of the columns, or with two of that name."""
    for name in wanted:
        if name not in names:
            raise ValueError(f"{what} must have a column {name!r}; it has {', '.join(sorted(names)) or 'none'}.")
        if names.count(name) > 1:
            raise ValueError(f"{what} must have one column {name!r}, got {names.count(name)}.")


def _fields(line: bytes, delimiter: str) -> tuple[str, ...]:
    try:
        text = line.rstrip(b"\r\n").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"its first line must be UTF-8, got the byte 0x{line[error.start]:02x}.") from error
    return tuple(name.strip().strip('"') for name in text.split(delimiter))
