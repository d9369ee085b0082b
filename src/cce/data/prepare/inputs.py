"""Raw files: which they are, how they are cut into pieces of work, and their bytes in blocks of whole lines.

Block `k` of a text holds the lines that begin in its `k`-th stretch of `BLOCK_BYTES`, whether the file is plain,
compressed or in a zip archive: so the same text gives the same blocks.
"""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import zipfile
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, cast

from cce.data.raw_format import COMPRESSED, ENDINGS, FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BLOCK_BYTES = 1 << 25
HEAD_BYTES = 1 << 16  # enough to see how lines end


@dataclass(frozen=True)
class Input:
    """One raw file, or one member of a zip archive."""

    path: Path
    member: str | None = None
    by_columns: bool = False  # Parquet, though its name may not say so

    def __str__(self) -> str:
        return str(self.path) if self.member is None else f"{self.path}:{self.member}"

    @property
    def is_parquet(self) -> bool:
        """Whether the file is read by columns."""
        return self.by_columns or (self.member is None and _is_by_columns(self.path.suffix))

    @property
    def is_plain(self) -> bool:
        """Whether reading can begin anywhere."""
        return self.member is None and self.path.suffix not in (*COMPRESSED, ".zip")

    def check(self, *, as_lines: bool | None = None) -> None:
        """Reject a file that is missing or empty, and one of lines (by default if it is no Parquet) with wrong ends."""
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path} must be a file, and there is none.")
        if self.path.stat().st_size == 0:
            raise ValueError(f"{self.path} must hold rows, and it is empty.")
        if not self.is_parquet if as_lines is None else as_lines:
            self._check_line_ends()

    def _check_line_ends(self) -> None:
        with self.open() as stream:
            start = stream.read(HEAD_BYTES)
        if not start:
            raise ValueError(f"{self} must hold rows, and it is empty.")
        if b"\r" in start and b"\n" not in start:
            raise ValueError(f"lines of {self} must end in \\n or \\r\\n, got \\r alone.")

    def header(self, delimiter: str) -> tuple[str, ...]:
        """The names in the first line."""
        with self.open() as stream:
            line = stream.readline().rstrip(b"\r\n")
        try:
            names = line.decode("utf-8-sig").split(delimiter)
        except UnicodeDecodeError as error:
            raise ValueError(f"header of {self} must be UTF-8, got the byte 0x{line[error.start]:02x}.") from error
        return tuple(name.strip().strip('"') for name in names)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The file's text; a compressed file that is damaged or truncated is rejected by name."""
        try:
            if self.member is not None:
                with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as stream:
                    yield stream
            else:
                with self.path.open("rb") as file, decompressed(file, self.path.suffix) as stream:
                    yield stream
        except EOFError as error:
            raise ValueError(f"{self} was cut short: its compressed text has no end.") from error
        except (
            *(gzip.BadGzipFile, zipfile.BadZipFile, zlib.error, lzma.LZMAError, DamagedError),
            *(NotImplementedError, RuntimeError),
        ) as error:
            # the last two are zipfile's, for a way of compression or a password that it does not have
            raise ValueError(f"{self} must be a whole compressed file, and it is damaged: {error}.") from error

    def blocks(self, block_bytes: int = BLOCK_BYTES) -> Iterator[tuple[int, bytes]]:
        """All blocks in order, each with the offset where it begins."""
        with self.open() as stream:
            yield from line_blocks(stream, block_bytes)

    def block(self, index: int, block_bytes: int = BLOCK_BYTES) -> tuple[int, bytes]:
        """One block of a plain file, which may be empty, and the offset where it begins."""
        with self.open() as stream:
            start = _first_line_at(stream, index * block_bytes)
            stop = _first_line_at(stream, (index + 1) * block_bytes)
            stream.seek(start)
            return start, stream.read(stop - start)


def _is_by_columns(ending: str) -> bool:
    return ending in ENDINGS and FORMATS[ENDINGS[ending]].by_columns


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


class DamagedError(Exception):
    """Compressed text that cannot be read."""


@contextmanager
def decompressed(file: IO[bytes], suffix: str) -> Iterator[IO[bytes]]:
    """The text of an open file whose name ends so."""
    if suffix == ".zst":
        from cce.data.prepare.arrow import open_zstd

        with open_zstd(file, DamagedError) as stream:
            yield stream
        return
    try:
        yield cast("IO[bytes]", OPENERS[suffix](file) if suffix in OPENERS else file)
    except OSError as error:
        if suffix == ".bz2" and error.errno is None:  # what bz2 says of damaged text
            raise DamagedError(str(error)) from error
        raise


OPENERS: dict[str, Any] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}


def _first_line_at(stream: IO[bytes], offset: int) -> int:
    """The start of the first line that begins at or after `offset`."""
    if offset == 0:
        return 0
    stream.seek(offset - 1)
    stream.readline()
    return stream.tell()
