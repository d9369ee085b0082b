"""The files of a table: which they are, what they are, and the names of their columns."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from cce.data.prepare.inputs import Input
from cce.data.raw_format import COMPRESSED, ENDINGS, FORMATS

if TYPE_CHECKING:
    from collections.abc import Sequence

JSON_LINES = 1000  # that are looked at for the names of columns


@dataclass(frozen=True)
class Header:
    """Names of columns, and what stands between them in a line."""

    names: tuple[str, ...]
    delimiter: str
    is_json: bool


def find_inputs(raw: Path | Sequence[Path], form: str | None) -> tuple[Input, ...]:
    """The files of a path or of several, folders searched; names say what they are unless `form` does."""
    paths = [each for path in ([raw] if isinstance(raw, Path) else raw) for each in _files(path, form)]
    return tuple(_input(path, form) for path in paths)


def _files(raw: Path, form: str | None) -> list[Path]:
    """A file itself, or the part files below a folder, in the order of their names."""
    if not raw.is_dir():
        return [raw]
    found = [path for path in sorted(raw.rglob("*")) if path.is_file() and not _is_hidden(path.relative_to(raw))]
    found = [path for path in found if form is not None or _ending(path) in ENDINGS]
    if not found:
        raise FileNotFoundError(f"{raw} must hold files that end in {', '.join(ENDINGS)}, and there is none.")
    return found


def _is_hidden(path: Path) -> bool:
    """Marks of other programs, such as _SUCCESS and .part.crc."""
    return any(part.startswith((".", "_")) for part in path.parts)


def _ending(path: Path) -> str:
    """How the name of a file ends, apart from what it is compressed by."""
    return path.with_suffix("").suffix if path.suffix in (*COMPRESSED, ".zip") else path.suffix


def _input(path: Path, form: str | None) -> Input:
    if form is None and _ending(path) not in ENDINGS:
        raise ValueError(
            f"{path} must end in {', '.join(ENDINGS)} (or with {', '.join(COMPRESSED)}, .zip), to say what it is, "
            "or format must be given."
        )
    return Input(path, _member(path) if path.suffix == ".zip" else None, form is not None and FORMATS[form].by_columns)


def _member(path: Path) -> str:
    """The one file of a zip archive."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} must be a file, and there is none.")
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} must be a whole zip archive, and it is damaged.")
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
    if len(names) != 1:
        raise ValueError(f"{path} must hold one file, got {len(names)}.")
    return names[0]


def read_header(inputs: Sequence[Input], form: str | None) -> Header:
    """The columns of all files, which must be the same; files of JSON may lack some."""
    headers = []
    for input_ in inputs:
        input_.check()
        headers.append(_header(input_, form or ENDINGS[_ending(input_.path)]))
    first = headers[0]
    for input_, other in zip(inputs, headers, strict=True):
        if not first.is_json and other.names != first.names:
            raise ValueError(f"files must have the same columns, and {input_} has others than {inputs[0]}.")
        if (other.delimiter, other.is_json) != (first.delimiter, first.is_json):
            raise ValueError(f"files must be of one kind, and {input_} is not of that of {inputs[0]}.")
    names = dict.fromkeys(name for header in headers for name in header.names) if first.is_json else first.names
    return Header(tuple(names), first.delimiter, first.is_json)


def _header(input_: Input, form: str) -> Header:
    found = FORMATS[form]
    if found.by_columns:
        from cce.data.prepare.arrow import parquet_columns

        return Header(tuple(parquet_columns(input_.path)), "", is_json=False)
    names = _keys(input_) if found.is_json else input_.header(found.delimiter)
    return Header(names, found.delimiter, is_json=found.is_json)


def _keys(input_: Input) -> tuple[str, ...]:
    """The keys of the first lines that are JSON objects; others are counted as malformed rows when they are read."""
    from cce.data.prepare.arrow import json_names

    with input_.open() as stream:
        return tuple(json_names(b"".join(islice(stream, JSON_LINES))))
