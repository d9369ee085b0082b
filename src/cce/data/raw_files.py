"""Raw files: the table of formats, which files a path means, and their bytes in blocks of whole lines.

Block `k` of a text holds the lines that begin in its `k`-th stretch of `BLOCK_BYTES`, whether the file is plain
or compressed: so the same text gives the same blocks.
"""

from __future__ import annotations

import gzip
import importlib.util
import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from cce.text import install_hint

BLOCK_BYTES = 1 << 25
HEAD_BYTES = 1 << 16  # enough to see how lines end


@dataclass(frozen=True)
class FileFormat:
    """A format of raw rows: lines of text, or columns."""

    endings: tuple[str, ...]  # of names of files
    delimiter: str = ""  # between the fields of a line; none if it is read by columns

    @property
    def by_columns(self) -> bool:
        return not self.delimiter


FORMATS = {
    "csv": FileFormat((".csv",), ","),
    "tsv": FileFormat((".tsv", ".txt"), "\t"),
    "parquet": FileFormat((".parquet", ".pq")),
}
ENDINGS = {ending: name for name, each in FORMATS.items() for ending in each.endings}
COMPRESSED = ".gz"
JSON_LINES = ".jsonl"  # of parts of a stream, and of rows that a run is asked about


def check_pyarrow() -> None:
    """Reject a machine without pyarrow, and say how to get it."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ValueError(f"raw data is read with pyarrow: {install_hint('data')}.")


def find_format(path: str | Path, *, default: str | None = None) -> str:
    """The format that the end of a name says, apart from what it is compressed by."""
    found = ENDINGS.get(_ending(Path(path)), default)
    if found is None:
        raise ValueError(f"{path} must end in {', '.join(ENDINGS)} (or with {COMPRESSED}), to say what it is.")
    return found


def _ending(path: Path) -> str:
    """How the name of a file ends, apart from what it is compressed by."""
    return path.with_suffix("").suffix if path.suffix == COMPRESSED else path.suffix


# -- files of a table --------------------------------------------------------------------------------------------------


def find_inputs(raw: Path) -> tuple[Input, ...]:
    """A file, or the part files below a folder in the order of their names, without marks such as _SUCCESS."""
    if not raw.is_dir():
        find_format(raw)
        return (Input(raw),)
    found = [path for path in sorted(raw.rglob("*")) if path.is_file() and _ending(path) in ENDINGS]
    found = [path for path in found if not any(part.startswith((".", "_")) for part in path.relative_to(raw).parts)]
    if not found:
        raise FileNotFoundError(f"{raw} must hold files that end in {', '.join(ENDINGS)}, and there is none.")
    return tuple(Input(path) for path in found)


def read_names(inputs: Sequence[Input]) -> tuple[tuple[str, ...], FileFormat]:
    """The columns of all files and their format, which must be the same."""
    found = [(input_.names(), FORMATS[find_format(input_.path)]) for input_ in inputs]
    names, format_ = found[0]
    for input_, (others, other) in zip(inputs, found, strict=True):
        if other != format_:
            raise ValueError(f"files must be of one kind, and {input_} is not of that of {inputs[0]}.")
        if others != names:
            raise ValueError(f"files must have the same columns, and {input_} has others than {inputs[0]}.")
    return names, format_


def check_columns(what: str, wanted: Iterable[str], names: Sequence[str]) -> None:
    """Reject rows without one of the columns, or with two of that name."""
    for name in wanted:
        if name not in names:
            raise ValueError(f"{what} must have a column {name!r}; it has {', '.join(names) or 'none'}.")
        if names.count(name) > 1:
            raise ValueError(f"{what} must have one column {name!r}, got {names.count(name)}.")


def split_header(line: bytes, delimiter: str, what: str) -> tuple[str, ...]:
    """The names in a line, which `what` calls in errors."""
    line = line.rstrip(b"\r\n")
    try:
        names = line.decode("utf-8-sig").split(delimiter)
    except UnicodeDecodeError as error:
        raise ValueError(f"{what} must be UTF-8, got the byte 0x{line[error.start]:02x}.") from error
    return tuple(name.strip().strip('"') for name in names)


# -- one file ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Input:
    """One raw file."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def is_parquet(self) -> bool:
        return self.path.suffix in FORMATS["parquet"].endings

    @property
    def is_plain(self) -> bool:
        """Whether reading can begin anywhere."""
        return self.path.suffix != COMPRESSED

    def check(self) -> None:
        """Reject a file that is missing or empty, and one of lines whose ends are wrong."""
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path} must be a file, and there is none.")
        if self.path.stat().st_size == 0:
            raise ValueError(f"{self.path} must hold rows, and it is empty.")
        if self.is_parquet:
            return
        with self.open() as stream:
            start = stream.read(HEAD_BYTES)
        if not start:
            raise ValueError(f"{self} must hold rows, and it is empty.")
        if b"\r" in start and b"\n" not in start:
            raise ValueError(f"lines of {self} must end in \\n or \\r\\n, got \\r alone.")

    def check_end(self) -> None:
        """Reject a plain text whose last line has no end: it may have been cut in the middle of a row."""
        if self.is_plain and not self.is_parquet:
            with self.path.open("rb") as file:
                file.seek(-1, 2)
                if file.read(1) != b"\n":
                    raise ValueError(f"{self.path} must end with a line break: its last row may have been cut.")

    def header(self, delimiter: str) -> tuple[str, ...]:
        with self.open() as stream:
            return split_header(stream.readline(), delimiter, f"header of {self}")

    def names(self) -> tuple[str, ...]:
        """The columns of the file, checked."""
        from cce.data.arrow.tables import parquet_columns

        self.check()
        format_ = FORMATS[find_format(self.path)]
        return tuple(parquet_columns(self.path)) if format_.by_columns else self.header(format_.delimiter)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The file's text; a compressed file that is damaged or truncated is rejected by name."""
        try:
            with self.path.open("rb") as file:
                yield file if self.is_plain else cast("IO[bytes]", gzip.GzipFile(fileobj=file))
        except EOFError as error:
            raise ValueError(f"{self} was cut short: its compressed text has no end.") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{self} must be a whole compressed file, and it is damaged: {error}.") from error

    def blocks(self, block_bytes: int = BLOCK_BYTES) -> Iterator[tuple[int, bytes]]:
        """All blocks in order, each with the offset where it begins."""
        with self.open() as stream:
            yield from line_blocks(stream, block_bytes)

    def block(self, index: int, block_bytes: int = BLOCK_BYTES) -> tuple[int, bytes]:
        """One block of a plain file, which may be empty, and the offset where it begins."""
        with self.open() as stream:
            start, stop = (_first_line_at(stream, each * block_bytes) for each in (index, index + 1))
            stream.seek(start)
            return start, stream.read(stop - start)


def line_blocks(stream: IO[bytes], block_bytes: int = BLOCK_BYTES) -> Iterator[tuple[int, bytes]]:
    """All blocks of whole lines of a stream, each with the offset where it begins."""
    offset = 0
    for index in itertools.count(1):
        wanted = index * block_bytes - offset
        if wanted <= 0:
            continue  # a line reaches across the whole block
        text = stream.read(wanted)
        if len(text) == wanted and not text.endswith(b"\n"):
            text += stream.readline()
        if not text:
            return
        yield offset, text
        offset += len(text)


def _first_line_at(stream: IO[bytes], offset: int) -> int:
    """The start of the first line that begins at or after `offset`."""
    if offset == 0:
        return 0
    stream.seek(offset - 1)
    stream.readline()
    return stream.tell()
