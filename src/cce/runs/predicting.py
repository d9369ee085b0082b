"""Probabilities of raw rows, block by block, and files of them."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import torch
from torch import nn
from tqdm import tqdm

from cce.data import FORMATS, STANDARD, find_format
from cce.files import check_target, replace_file

if TYPE_CHECKING:
    import numpy as np

    from cce.schema import Batch

BATCH_SIZE = 16_384
COLUMN = "probability"


@torch.no_grad()
def predict_batches(model: nn.Module, batches: Iterable[Batch], *, progress: bool) -> Iterator[np.ndarray]:
    """The probabilities of each batch, float32."""
    device, num_rows = next(model.parameters()).device, 0
    with tqdm(desc="rows", unit="row", leave=False, disable=None if progress else True) as bar:
        for batch in batches:
            logits = model(batch.to(device)).float().cpu()
            if not bool(logits.isfinite().all()):
                rows = f"rows {num_rows + 1} to {num_rows + len(batch)}"
                raise ValueError(f"logits must be finite, got NaN or infinity in {rows}.")
            yield torch.sigmoid(logits).numpy()
            num_rows += len(batch)
            bar.update(len(batch))


def write_predictions(blocks: Iterable[np.ndarray], out: str | Path, form: str | None = None) -> int:
    """Write probabilities to a file, whole or not at all, or to standard output ("-"); return how many there were."""
    form = find_format(out, form)
    if str(out) != STANDARD:
        check_target("out", Path(out))
        if Path(out).suffix in (".bz2", ".xz", ".zst"):
            raise ValueError(f"out must be plain or end in .gz, got {str(out)!r}.")
    num_rows = 0
    with _writer(out, form) as write:
        for block in blocks:
            write(block)
            num_rows += len(block)
    return num_rows


@contextmanager
def _writer(out: str | Path, form: str) -> Iterator[Callable[[np.ndarray], None]]:
    if FORMATS[form].by_columns:
        from cce.data import TableWriter

        if str(out) == STANDARD or _is_compressed(out):
            place = "in a .gz file" if _is_compressed(out) else "on standard output"
            raise ValueError(f"format must be csv, tsv or jsonl {place}, got 'parquet'.")
        with replace_file(Path(out)) as temporary, TableWriter(temporary, {COLUMN: "float32"}) as table:
            yield lambda block: table.write({COLUMN: block})
        return
    with _text_file(out) as file:
        file.write("" if FORMATS[form].is_json else f"{COLUMN}\n")
        yield lambda block: _write_lines(file, block, as_json=FORMATS[form].is_json)


def _write_lines(file: IO[str], block: np.ndarray, *, as_json: bool) -> None:
    """The shortest digits that are the number again in float32."""
    texts = (str(value) for value in block)
    file.writelines(f'{{"{COLUMN}": {text}}}\n' if as_json else f"{text}\n" for text in texts)


@contextmanager
def _text_file(out: str | Path) -> Iterator[IO[str]]:
    if str(out) == STANDARD:
        if sys.stdout is None:
            raise ValueError("standard output must be open to write to it, and it is closed.")
        yield sys.stdout
        sys.stdout.flush()
        return
    with replace_file(Path(out)) as temporary, _open(temporary, is_compressed=_is_compressed(out)) as file:
        yield file


def _open(path: Path, *, is_compressed: bool) -> IO[str]:
    return gzip.open(path, "wt", encoding="utf-8") if is_compressed else path.open("w", encoding="utf-8")


def _is_compressed(out: str | Path) -> bool:
    return str(out).endswith(".gz")
