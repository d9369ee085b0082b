"""Peak resident memory of training tables, each case in a process of its own.

    python -m benchmarks.memory [--quick] [--only cce]
    python -m benchmarks.memory --table    # writes the table of docs/memory.md from the record

The baseline is taken when all code is loaded and before tables are made. Every id occurs twice, so that in `cce` all of
them earn rows; beyond `MOST_EARNED` ids they get them by counts. `training` is the peak while the table is made and
trained, `held` what is left between two steps, `event` the peak of a finalize (`cce`) or a clustering (`cce-paper`),
`served` what is left after it. Beside `held` and `served` stands what `cce.summary` says they are. Cases that would
need more than `MOST_NBYTES` are left out. The record has the commit of every figure; new ones take the place of old.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.side_by_side import RESULTS, PeakMemory, commit, give_back_memory, keep, resident
from benchmarks.traffic import CRITEO_SIZES
from cce.text import format_bytes, format_table

if TYPE_CHECKING:
    import torch

BATCH, NUM_ROWS = 8_192, 256
MOST_NBYTES = 7 << 30
FEW_STEPS = 50  # where memory does not depend on which ids have occurred
MOST_EARNED = 20_000_000  # ids that earn rows in steps; with more, rows are given by counts before the first step
# Bytes an id and value, or an id: to leave out what does not fit
KINDS = {"full, Adam": 20, "full, SparseAdam": 12, "cce": 1.3, "cce-paper": 0.5, "hash": 0.1}
COMPUTED = {"full, Adam": 24, "full, SparseAdam": 12}  # bytes an id and value at the peak, where nothing is measured
PAGE, MARKS = Path("docs/memory.md"), ("<!-- memory: begin -->\n", "<!-- memory: end -->")
QUICK = [(100_000, 16)]
SIZES = [(1_000_000, 16), (1_000_000, 64), (10_000_000, 16), (10_000_000, 64), (100_000_000, 16)]


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default=None, help="measure one kind of table")
    parser.add_argument("--table", action="store_true", help="write the table of docs/memory.md from the record")
    parser.add_argument("--one", nargs=3, default=None, help=argparse.SUPPRESS)  # kind, ids, dim: prints JSON
    options = parser.parse_args(argv)
    if options.table:
        PAGE.write_text(with_table(PAGE.read_text(), read()))
        return []
    if options.one:
        kind, num_ids, dim = options.one
        print(json.dumps(measure(kind, [int(size) for size in num_ids.split(",")], int(dim))))
        return []
    cases = [([num_ids], dim) for num_ids, dim in (QUICK if options.quick else SIZES)]
    cases += [] if options.quick else [(list(CRITEO_SIZES), 16)]
    kinds = [options.only] if options.only else list(KINDS)
    figures = [
        _in_a_process(kind, sizes, dim)
        for sizes, dim in cases
        for kind in kinds
        if KINDS[kind] * dim * sum(sizes) <= MOST_NBYTES
    ]
    headers = ("table", "features", "ids", "dim", "training", "bytes/id", "event", "served", "seconds")
    print(format_table(headers, [_row(figure) for figure in figures], num_left=1))
    if not options.quick:
        known = {_key(figure): figure for figure in [*read(), *figures]}
        print(keep("memory", [known[key] for key in sorted(known)]))
    return figures


def read() -> list[dict[str, Any]]:
    """The figures that are stored."""
    return json.loads((RESULTS / "memory.json").read_text())["figures"]  # type: ignore[no-any-return]


def _key(figure: dict[str, Any]) -> tuple[int, int, int, int]:
    return figure["num_ids"], figure["num_features"], figure["dim"], list(KINDS).index(figure["table"])


def with_table(text: str, figures: list[dict[str, Any]]) -> str:
    """A page with its table between the two marks."""
    begin, end = MARKS
    before, rest = text.split(begin)
    return f"{before}{begin}{table(figures)}{end}{rest.split(end)[1]}"


def table(figures: list[dict[str, Any]]) -> str:
    """All cases; full tables that are too large to be measured here are computed."""
    known = {_key(figure): figure for figure in figures}
    lines = ["| ids, $d_2$ | table | peak in training | of finalize or clustering | served |", "|:--|:--|--:|--:|--:|"]
    for num_ids, num_features, dim in sorted({key[:3] for key in known}):
        case = f"{num_ids:,}{f' in {num_features} tables' if num_features > 1 else ''}, {dim}"
        for place, kind in enumerate(KINDS):
            found = known.get((num_ids, num_features, dim, place))
            if found is not None:
                sizes = (found["training"], found["event"], found["served"])
                cells = ["" if nbytes is None else format_bytes(nbytes) for nbytes in sizes]
            elif kind in COMPUTED:
                cells = [f"{format_bytes(COMPUTED[kind] * dim * num_ids)}, computed", "", ""]
            else:
                continue
            name = kind if kind in COMPUTED else f"`{kind}`"
            lines.append(f"| {case} | {name} | {' | '.join(cells)} |")
            case = ""
    return "\n".join(lines) + "\n"


def measure(kind: str, sizes: list[int], dim: int) -> dict[str, Any]:
    """Bytes above the baseline, in this process."""
    import cce

    if kind in ("cce", "cce-paper"):
        _finish(kind, _train(kind, [3_000], dim)[0])
    _train(kind, [3_000], dim)  # all code is loaded from here on
    give_back_memory()
    started, before = time.perf_counter(), resident()
    with PeakMemory() as training:
        tables, optimizer = _train(kind, sizes, dim)
    give_back_memory()
    has_event = kind in ("cce", "cce-paper")
    held, planned = resident() - before, cce.summary(tables, optimizer).total
    del optimizer
    with PeakMemory() as event:
        start = resident() - before
        if has_event:
            _finish(kind, tables)
    gc.collect()  # optimizers and staged clusterings refer to themselves
    give_back_memory()
    return {
        "table": kind,
        "commit": commit(),
        "num_features": len(sizes),
        "num_ids": sum(sizes),
        "dim": dim,
        "training": training.bytes,
        "held": held,
        "held_by_summary": planned.training_nbytes,
        "event": start + event.bytes if has_event else None,
        "served": resident() - before if has_event else None,
        "served_by_summary": cce.summary(tables).total.nbytes,
        "seconds": time.perf_counter() - started,
    }


def _train(kind: str, sizes: list[int], dim: int) -> tuple[Any, Any]:
    import torch

    import cce

    tables, optimizer = _make(kind, sizes, dim)
    is_earned = kind == "cce" and sum(sizes) <= MOST_EARNED
    if kind == "cce" and not is_earned:
        for table in tables.tables.values():
            if isinstance(table, cce.embeddings.CCEEmbedding):
                table.give_rows(torch.full((table.num_embeddings,), 2, dtype=torch.uint8))
    steps = 2 * -(-max(sizes) // BATCH) if is_earned else FEW_STEPS
    limits = torch.tensor(sizes)
    for step in range(steps):
        first = step * BATCH
        ids = torch.arange(first, first + BATCH).unsqueeze(1) % limits
        optimizer.zero_grad()
        _vectors(tables, ids).square().sum().backward()
        optimizer.step()
    return tables, optimizer


def _make(kind: str, sizes: list[int], dim: int) -> tuple[Any, Any]:
    import torch

    import cce

    features = {str(index): size for index, size in enumerate(sizes)}
    if kind.startswith("full"):
        sparse = kind.endswith("SparseAdam")
        full = torch.nn.ModuleList(torch.nn.Embedding(size, dim, sparse=sparse) for size in sizes)
        return full, (torch.optim.SparseAdam if sparse else torch.optim.Adam)(full.parameters())
    cap = None if kind == "cce" else NUM_ROWS * dim * (2 if kind == "cce-paper" else 1)
    tables = cce.EmbeddingCollection(features, dim, method=kind, cap=cap, seed=0)
    return tables, cce.optim.Adam(tables) if kind == "cce" else torch.optim.Adam(tables.parameters())


def _vectors(tables: Any, ids: torch.Tensor) -> torch.Tensor:
    import torch

    if isinstance(tables, torch.nn.ModuleList):
        return torch.stack([table(ids[:, index]) for index, table in enumerate(tables)], dim=1)
    return tables(ids)  # type: ignore[no-any-return]


def _finish(kind: str, tables: Any) -> None:
    """Let tables have the form in which they are served."""
    import torch

    import cce

    if kind == "cce":
        cce.finalize(tables, num_columns=4, num_rows=256, seed=0)
    else:
        tables.cluster(generator=torch.Generator().manual_seed(0))
    tables.zero_grad()
    with torch.no_grad():
        _vectors(tables, torch.zeros(1, len(tables.features), dtype=torch.int64))  # plans of lookups let go of old rows


def _in_a_process(kind: str, sizes: list[int], dim: int) -> dict[str, Any]:
    numbers = ",".join(map(str, sizes))
    command = [sys.executable, "-m", "benchmarks.memory", "--one", kind, numbers, str(dim)]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(result.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def _row(figure: dict[str, Any]) -> tuple[str, ...]:
    event = figure["event"]
    return (
        figure["table"],
        str(figure["num_features"]),
        f"{figure['num_ids']:,}",
        str(figure["dim"]),
        format_bytes(figure["training"]),
        f"{figure['training'] / figure['num_ids']:.1f}",
        "" if event is None else format_bytes(event),
        "" if event is None else format_bytes(figure["served"]),
        f"{figure['seconds']:.0f}",
    )


if __name__ == "__main__":
    main()
