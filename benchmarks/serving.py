"""Frozen tables beside full ones, as a service uses them: latency, resident memory, and time to open.

    python -m benchmarks.serving [--quick]

One feature of 10,000,000 ids, and 26 features of 400,000 ids each; 16 values, ids drawn evenly, one thread. Latencies
are taken in turns in one process. Memory and time to open are those of a process of its own: what it holds beyond an
empty one with the same packages loaded, after it has looked up every id once, and the seconds from the name of a file
to the first vector. `cce` has 4 columns; tables of 256 rows have pointers of 8 bits, those of 16 rows of 4 bits.
Rows are float32, and int8 where a table is not finalized.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.side_by_side import keep, resident
from cce.indexing import Assignments, LearnedRows, OwnRow, PointerStore, RowMap, blocks
from cce.kernels import Layout
from cce.serving import numpy_reader
from cce.serving.collection import FrozenCollection
from cce.serving.freezing import write_bundle
from cce.serving.frozen_tables import FrozenRows, StoredRows
from cce.text import format_bytes, format_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from cce.indexing import RowSource

    LookUp = Callable[[Tensor], Any]

DIM, COLUMNS, BATCHES = 16, 4, (1, 32, 512, 4_096)
FULL, FULL_ONNX = "nn.Embedding", "full, onnxruntime"
FROZEN = {"cce": 256, "cce, 4-bit pointers": 16, "cce, int8 rows": None}  # rows of a codebook; None: not finalized


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", nargs=2, default=None, help=argparse.SUPPRESS)  # a candidate and its file
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    if options.one:
        print(json.dumps(_open_and_weigh(*options.one)))
        return []
    sizes = {1: 20_000, 26: 1_000} if options.quick else {1: 10_000_000, 26: 400_000}
    figures = []
    for num_features, num_ids in sizes.items():
        with tempfile.TemporaryDirectory() as folder:
            figures += _measure(num_features, num_ids, Path(folder), rounds=20 if options.quick else 1_000)
    headers = ("table", "features", "batch", "p50 µs", "p99 µs", "rows/s", "x nn.Embedding", "held", "open ms")
    print(format_table(headers, [_row(figure) for figure in figures]))
    if not options.quick:
        print(keep("serving", figures))
    return figures


def _measure(num_features: int, num_ids: int, folder: Path, rounds: int) -> list[dict[str, Any]]:
    files = _write_files(num_features, num_ids, folder)
    opened = {name: _in_a_process(name, path) for name, path in files.items()}
    look_ups = {name: _open(name, str(path)) for name, path in files.items()}
    figures = []
    for batch in BATCHES:
        times = _latencies(look_ups, (batch, num_features), num_ids, rounds if batch < BATCHES[-1] else rounds // 5)
        for name, (median, late) in times.items():
            figures.append(
                {
                    "table": name,
                    "features": num_features,
                    "ids": num_ids,
                    "batch": batch,
                    "p50": median,
                    "p99": late,
                    "rows_per_second": batch / median,
                    "ratio": median / times[FULL][0],
                    **opened[name],
                }
            )
    return figures


def _latencies(
    look_ups: dict[str, LookUp], shape: tuple[int, int], num_ids: int, rounds: int
) -> dict[str, tuple[float, float]]:
    """Median and 99th percentile in seconds; candidates take turns, every round with ids of its own."""
    generator = torch.Generator().manual_seed(0)
    times: dict[str, list[float]] = {name: [] for name in look_ups}
    with torch.inference_mode():
        for round_ in range(rounds + 5):
            for name, look_up in look_ups.items():
                ids = torch.randint(0, num_ids, shape, generator=generator)
                started = time.perf_counter()
                look_up(ids)
                if round_ >= 5:
                    times[name].append(time.perf_counter() - started)
    return {name: (float(np.median(each)), float(np.quantile(each, 0.99))) for name, each in times.items()}


# -- files -------------------------------------------------------------------------------------------------------------


def _write_files(num_features: int, num_ids: int, folder: Path) -> dict[str, Path]:
    features = {f"f{index}": num_ids for index in range(num_features)}
    files = {}
    for name, num_rows in FROZEN.items():
        tables = {feature: _make_table(num_ids, num_rows) for feature in features}
        files[name] = folder / f"{num_rows}.safetensors"
        write_bundle(files[name], FrozenCollection(features, tables))
        del tables
    full = _FullTables([torch.randn(num_ids, DIM) for _ in features])
    files[FULL] = folder / "full.pt"
    torch.save(full.state_dict(), files[FULL])
    files[FULL_ONNX] = folder / "full.onnx"
    _write_onnx(full, num_features, files[FULL_ONNX])
    return files


def _make_table(num_ids: int, num_rows: int | None) -> FrozenRows:
    """A table as `freeze` makes it: pointers of every id, or an int8 row for every id, behind a map."""
    row_map = RowMap(num_ids)
    row_map.fill()
    if num_rows is None:
        rows = torch.randint(-127, 128, (num_ids, DIM), dtype=torch.int8)
        stored = StoredRows(rows, torch.full((1, DIM), 0.01))
        return FrozenRows(stored, Layout(num_ids, 1, 1, DIM, num_ids, [OwnRow(num_ids)], row_map=row_map))
    store, first_rows = PointerStore(num_ids, COLUMNS, num_rows), range(0, COLUMNS * num_rows, num_rows)
    for block in blocks(num_ids):
        store.write(int(block[0]), torch.randint(num_rows, (len(block), COLUMNS)))
    stored = StoredRows(torch.randn(COLUMNS * num_rows, DIM // COLUMNS))
    sources = [LearnedRows(Assignments.of(store), range(COLUMNS), first_rows)]
    shape = (num_ids, COLUMNS, 1, DIM // COLUMNS, COLUMNS * num_rows)
    return FrozenRows(stored, Layout(*shape, sources, row_map=row_map))


def _write_onnx(full: nn.Module, num_features: int, path: Path) -> None:
    ids = torch.zeros(3, num_features, dtype=torch.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made: Any = torch.onnx.export(
            full.eval(), (ids,), dynamo=True, dynamic_shapes=({0: torch.export.Dim("batch")},), verbose=False
        )
        made.save(path, external_data=True)


class _FullTables(nn.Module):
    """`nn.Embedding`s of all features."""

    def __init__(self, weights: list[Tensor]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding.from_pretrained(weight) for weight in weights)

    def forward(self, ids: Tensor) -> Tensor:
        return torch.stack([table(ids[:, place]) for place, table in enumerate(self.tables)], dim=1)


def _open(name: str, path: str) -> LookUp:
    """A candidate from its file, ready to look up."""
    if name == FULL_ONNX:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        (given,) = session.get_inputs()
        return lambda ids: session.run(None, {given.name: ids.numpy()})
    if name == FULL:
        weights = torch.load(path, mmap=True)
        full = _FullTables(list(weights.values()))
        return full.tables[0] if len(weights) == 1 else full
    bundle = numpy_reader.open_bundle(path)
    (collection,) = bundle.spec["collections"].values()
    tables = {feature: _frozen_rows(bundle[feature]) for feature in collection["tables"]}
    if len(tables) == 1:
        return next(iter(tables.values()))
    return FrozenCollection({feature: table.num_embeddings for feature, table in tables.items()}, tables)


def _frozen_rows(table: numpy_reader.Table) -> FrozenRows:
    """A table of a bundle as a module whose tensors are mapped from the file."""

    def mapped(name: str) -> Tensor:
        found = table._tensors.get(name)
        assert found is not None
        with warnings.catch_warnings(action="ignore"):  # it cannot be written to, and nobody does
            return torch.from_numpy(found)

    spec = table.spec
    scale = None if "rows.scale" not in table._tensors else mapped("rows.scale")
    (group,) = spec["groups"]
    sources: list[RowSource] = [OwnRow(len(mapped("rows.values")))]
    if group["kind"] == "learned":
        store = PointerStore(0, len(group["slots"]), group["num_rows"], bits=group["bits"])
        store.num_ids, store.words = group["num_ids"], mapped("groups.0.words")
        sources = [LearnedRows(Assignments.of(store), group["slots"], group["first_rows"])]
    row_map = RowMap(0)
    row_map.num_embeddings = row_map.num_rows = spec["num_embeddings"]
    row_map.bits, row_map.ranks = mapped("map.bits"), mapped("map.ranks")
    rows = StoredRows(mapped("rows.values"), scale)
    num_rows, width = rows.values.shape
    shape = (spec["num_embeddings"], spec["columns"], spec["terms"], width, num_rows)
    layout = Layout(*shape, sources, spec["padding_idx"], row_map)
    return FrozenRows(rows, layout)


# -- memory and time to open -------------------------------------------------------------------------------------------


def _in_a_process(name: str, path: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.serving", "--one", name, str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(result.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def _open_and_weigh(name: str, path: str) -> dict[str, Any]:
    _warm_up()
    before, started = resident(), time.perf_counter()
    look_up = _open(name, path)
    num_features, num_ids = _shape(name, path)
    with torch.inference_mode():
        look_up(torch.zeros(1, num_features, dtype=torch.int64))
        seconds = time.perf_counter() - started
        for first in range(0, num_ids, BATCHES[-1]):
            block = torch.arange(first, min(first + BATCHES[-1], num_ids))
            look_up(block.unsqueeze(1).expand(-1, num_features).contiguous())
    return {"open_seconds": seconds, "held": resident() - before}


def _shape(name: str, path: str) -> tuple[int, int]:
    """Features and ids of each, as the frozen files beside it say."""
    beside = path if name in FROZEN else str(next(Path(path).parent.glob("*.safetensors")))
    tables = numpy_reader.open_bundle(beside).tables
    return len(tables), next(iter(tables.values())).num_embeddings


def _warm_up() -> None:
    """Load packages and compiled loops, which every service does once."""
    import onnxruntime  # noqa: F401

    for num_rows in FROZEN.values():
        tables = {name: _make_table(99, num_rows) for name in "ab"}
        FrozenCollection(dict.fromkeys(tables, 99), tables)(torch.zeros(1, 2, dtype=torch.int64))
    nn.Embedding(9, DIM)(torch.zeros(1, dtype=torch.int64))


def _row(figure: dict[str, Any]) -> tuple[str, ...]:
    return (
        figure["table"],
        str(figure["features"]),
        f"{figure['batch']:,}",
        f"{figure['p50'] * 1e6:.1f}",
        f"{figure['p99'] * 1e6:.1f}",
        f"{figure['rows_per_second']:,.0f}",
        f"{figure['ratio']:.2f}",
        format_bytes(figure["held"]),
        f"{figure['open_seconds'] * 1e3:.1f}",
    )


if __name__ == "__main__":
    main()
