"""Bytes and seconds of deltas: what has changed of an open table of ten million ids, for readers that are open.

    python -m benchmarks.delta [--quick]

A share of the ids changes: nine tenths of them are trained for a few steps, a tenth as many lose their rows, and as
many new ones come. Beside the bytes of the delta are those of rows of 8 bits as others ship them: `dim + 4` bytes a
row, and 8 of its key. Readers are a frozen model and an open bundle; both must end with the bits of what was exported.
Seconds are CPU time of one thread; those of a full export are what finalize and the file take.
"""

from __future__ import annotations

import argparse
import copy
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

import cce
from benchmarks.side_by_side import keep
from cce.embeddings.eviction import remove_rows
from cce.indexing import scramble
from cce.serving import numpy_reader, write_bundle
from cce.text import format_bytes, format_table

if TYPE_CHECKING:
    from collections.abc import Callable

DIM, COLUMNS, ROWS, STEPS = 16, 4, 256, 3
SHARES = (0.001, 0.01, 0.1)
AT_A_TIME = 1 << 18
MODEL = "model.safetensors"


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    try:
        figures = _measure(20_000 if options.quick else 10**7, folder)
    finally:
        shutil.rmtree(folder)
    headers = ("ids", "changed", "delta", "a row", "peers: dim + 4", "with keys", "write s", "bundle s", "frozen s")
    print(format_table(headers, [_row(each) for each in figures], num_left=0))
    if not options.quick:
        print(keep("delta", figures))
    return figures


def _measure(num_ids: int, folder: Path) -> list[dict[str, Any]]:
    table = cce.create_embedding("cce", None, DIM, seed=0)
    optimizer = cce.optim.Adam(table, lr=table.rows.bound / 10)  # a step moves a value by a tenth of what there is
    draw = torch.Generator().manual_seed(0)
    for first in range(0, num_ids, AT_A_TIME):
        _train(table, optimizer, torch.arange(first, min(first + AT_A_TIME, num_ids)), draw)
    compact, seconds = copy.deepcopy(table), {}
    seconds["finalize"], _ = _timed(cce.finalize, compact, num_columns=COLUMNS, num_rows=ROWS, seed=0)
    frozen = cce.freeze(compact)
    compact = None
    seconds["export"], _ = _timed(write_bundle, folder / MODEL, frozen)
    bundle, figures, num_known = numpy_reader.open_bundle(folder / MODEL), [], num_ids
    for share in SHARES:
        num_new = round(num_ids * share / 10)
        _change(table, optimizer, num_known, round(num_ids * share), num_new)
        num_known += num_new
        seconds["delta"], report = _timed(cce.delta, table, since=folder)
        seconds["bundle"], _ = _timed(cce.apply_delta, bundle, report.path)
        seconds["frozen"], _ = _timed(cce.apply_delta, frozen, report.path)
        _check(frozen, bundle, numpy_reader.open_bundle(folder / MODEL))
        (moved,) = report.tables
        num_moved = moved.admitted + moved.changed
        sizes = {"nbytes": report.nbytes, "export_nbytes": report.export_nbytes, "peers": num_moved * (DIM + 4)}
        facts = {"ids": num_ids, "share": share, "admitted": moved.admitted, "changed": moved.changed}
        figures.append({**facts, "evicted": moved.evicted, **sizes, "lost": moved.lost, **seconds})
    return figures


def _change(table: Any, optimizer: Any, num_known: int, num_changed: int, num_new: int) -> None:
    """Train ids that there are, let some of the others go, and let new ones come."""
    draw = torch.Generator().manual_seed(num_changed)
    old = torch.randint(num_known, (num_changed - num_new,), generator=draw)
    for _ in range(STEPS):
        _train(table, optimizer, torch.cat([old, torch.arange(num_known, num_known + num_new)]), draw)
    table.rows.compact()
    is_gone = torch.zeros(table.rows.num_rows - 1, dtype=torch.bool)
    is_gone[torch.randperm(len(is_gone), generator=draw)[:num_new]] = True
    remove_rows(table.rows, is_gone)


def _train(table: Any, optimizer: Any, ids: Tensor, draw: torch.Generator) -> None:
    optimizer.zero_grad()
    table(scramble(ids)).backward(torch.randn(len(ids), DIM, generator=draw))
    optimizer.step()


def _check(frozen: Any, bundle: Any, exported: Any) -> None:
    for name, expected in exported.tables["table"].tensors.items():
        assert np.array_equal(bundle.tables["table"].tensors[name], expected), name
        assert np.array_equal(frozen.tensors()[name].numpy(), expected), name


def _timed(run: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[float, Any]:
    started = time.process_time()
    found = run(*arguments, **named)
    return time.process_time() - started, found


def _row(each: dict[str, Any]) -> tuple[str, ...]:
    num_moved = each["admitted"] + each["changed"]
    sizes = (format_bytes(each["nbytes"]), f"{each['nbytes'] / num_moved:.1f} B", format_bytes(each["peers"]))
    seconds = (f"{each[name]:.1f}" for name in ("delta", "bundle", "frozen"))
    return f"{each['ids']:,}", f"{each['share']:.1%}", *sizes, format_bytes(each["peers"] + 8 * num_moved), *seconds


if __name__ == "__main__":
    main()
