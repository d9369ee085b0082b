"""Zstandard, which Python itself cannot read before 3.14."""

from __future__ import annotations

from contextlib import contextmanager
from io import BufferedReader
from typing import IO, TYPE_CHECKING, cast

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def open_zstd(file: IO[bytes], damaged: type[Exception]) -> Iterator[IO[bytes]]:
    """The text of an open .zst file; `damaged` is raised where it cannot be read."""
    try:
        with pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd") as stream:
            yield cast("IO[bytes]", BufferedReader(stream))  # it has lines
    except (OSError, pa.ArrowException) as error:
        raise damaged(str(error).partition("\n")[0]) from error
