"""The first rows of raw data, and how many times more there are: enough to estimate what training on all costs."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cce.data.prepare.arrow import parquet_groups, save_first_rows
from cce.data.prepare.inputs import COMPRESSED, Input, decompressed
from cce.data.prepare.job import Splitting

if TYPE_CHECKING:
    from cce.data.prepare.job import Job

HEAD_BYTES = 1 << 23
HEAD_ROWS = 50_000


def head_of(job: Job, folder: Path) -> tuple[Job, float]:
    """The job of the first rows, copied to `folder`, and how many times more rows the raw files have, about."""
    for input_ in job.inputs:
        input_.check()
    first = job.inputs[0]
    name = Path(first.member or first.path.name)
    path = folder / (name.stem if name.suffix in COMPRESSED else name.name)
    if first.is_parquet:
        factor = _copy_first_rows(job, path)
    else:
        path.write_bytes(text := _first_lines(first, job.block_bytes))
        factor = sum(_text_bytes(input_) for input_ in job.inputs) / len(text)
    return replace(job, inputs=(Input(path),), splitting=_splitting(job)), max(factor, 1.0)


def _copy_first_rows(job: Job, path: Path) -> float:
    num_rows = save_first_rows(job.inputs[0].path, path, HEAD_ROWS)
    return sum(sum(parquet_groups(input_.path)) for input_ in job.inputs) / max(num_rows, 1)


def _first_lines(input_: Input, block_bytes: int) -> bytes:
    return next(text for _, text in input_.blocks(min(HEAD_BYTES, block_bytes)))


def _text_bytes(input_: Input) -> float:
    """The bytes of a file's text; those of a compressed file as if all of it were compressed as its beginning is."""
    if input_.member is not None:
        with zipfile.ZipFile(input_.path) as archive:
            return archive.getinfo(input_.member).file_size
    size = input_.path.stat().st_size
    if input_.is_plain:
        return size
    with input_.path.open("rb") as file, decompressed(file, input_.path.suffix) as stream:
        num_read = len(stream.read(HEAD_BYTES))
        return num_read * size / file.tell()


def _splitting(job: Job) -> Splitting:
    """The job's, where the first rows can be split as all of them; otherwise as many rows are held out."""
    splitting = job.splitting
    if splitting.way == "last-file":
        sizes = [input_.path.stat().st_size for input_ in job.inputs]
        share = sizes[-1] / sum(sizes) / 2 if len(sizes) > 1 else 0.1
        return Splitting(validation=share, test=share)
    return Splitting() if splitting.way in ("column", "files") else splitting
