"""Three streams, day after day: open `cce` tables beside full rows for every id, and hashing in equal bytes.

    python -m benchmarks.stream [--sets NAME …] [--quick]

Each day is scored by the model as it is (`ahead`), then trained on once in its own order; each of its batches is also
scored right before it is trained on (`progressive`). `full` has a float32 row for every id of the stream from the
start, and Adam; its bytes are those of the ids that came so far, two moments included. `cce` has no cap, or one of 10,
25 or 50 % of the ids; `hash` has the bytes of the `cce` above it, its moments included.
Figures are those of days 6 to 10. Days 2 to 5 choose the learning rate of `cce`; the baselines have the one that turned
out best on the days shown, which favours them. Rates are chosen without a cap. Runs that are in the records are not
repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import cce
from benchmarks.real_sets.models import DIM, DeepFM
from benchmarks.side_by_side import RESULTS, machine
from cce.data import SyntheticClicks
from cce.embeddings import CCEEmbedding, HashingTrickEmbedding
from cce.text import format_bytes, format_table

RECORDS = RESULTS / "stream.jsonl"
DAYS, CHOSEN_BY, SHOWN, BATCH, RATES, SEED = 10, slice(1, 5), slice(5, 10), 512, (1e-3, 3e-3, 1e-2, 3e-2), 0
CAPS = (None, 0.1, 0.25, 0.5)
MOMENTS = 3  # a value and two moments of Adam
Record = dict[str, Any]


class Stream(NamedTuple):
    """Rows in their order."""

    ids: Tensor  # (rows, features), any int64
    numbers: Tensor  # (rows, features), by first occurrence
    dense: Tensor
    labels: Tensor
    sizes: list[int]  # ids of each feature, in all
    oracle: list[float]  # by day


def of_rows(ids: Tensor, dense: Tensor, labels: Tensor, oracle: Sequence[float] = ()) -> Stream:
    columns, sizes = [], []
    for column in ids.unbind(1):
        _, first, inverse = np.unique(column.numpy(), return_index=True, return_inverse=True)
        columns.append(torch.from_numpy(np.argsort(np.argsort(first))[inverse]))
        sizes.append(len(first))
    return Stream(ids, torch.stack(columns, 1), dense, labels, sizes, list(oracle))


def synthetic(num_rows: int) -> Stream:
    """Ids are replaced twice in ten days, and a fifth of them moves to another cluster."""
    g = torch.Generator().manual_seed(SEED)
    world = SyntheticClicks((4_000, 1_000, 200), num_clusters=12, num_dense=2, turnover=2, drift=0.2, generator=g)
    sample = world.sample(num_rows, times=torch.arange(num_rows, dtype=torch.float64) / num_rows, generator=g)
    losses = nn.functional.binary_cross_entropy(sample.probabilities, sample.labels.double(), reduction="none")
    ids = sample.ids + (torch.arange(3) << 48)
    return of_rows(ids, sample.dense, sample.labels, [float(day.mean()) for day in losses.chunk(DAYS)])


def real(name: str, num_rows: int) -> Stream:
    """The last rows of tennis by time, or the first of Book-Crossing in its order."""
    from pyarrow import parquet

    table = parquet.read_table(Path(os.environ.get("CCE_DATA", "../shared/data")) / f"{name}.parquet")
    if name == "tennis":
        table = table.take(np.argsort(table["timestamp"].to_numpy(), kind="stable"))
    table = table.slice(max(0, len(table) - num_rows)) if name == "tennis" else table.slice(0, num_rows)
    names = {kind: [each for each in table.column_names if each[0] == kind and each[1:].isdigit()] for kind in "cd"}
    columns = [table[each].combine_chunks().cast("string").fill_null("") for each in names["c"]]
    ids = np.stack([cce.hash_ids(column) for column in columns], 1)
    dense = np.stack([table[each].to_numpy(zero_copy_only=False).astype(float) for each in names["d"]], 1)
    dense = np.nan_to_num(dense)
    dense = np.sign(dense) * np.log1p(np.abs(dense))
    labels = torch.from_numpy(table["label"].to_numpy().copy()).float()
    return of_rows(torch.from_numpy(ids), torch.from_numpy(dense).float(), labels)


SETS = {
    "synthetic": synthetic,
    "tennis": lambda rows: real("tennis", rows),
    "bookcrossing": lambda rows: real("bookcrossing", rows),
}


def tables(stream: Stream, way: str, cap: float | None, rows: list[int]) -> nn.Module:
    """`rows` are those of hashed tables."""
    names = [f"c{index}" for index in range(len(stream.sizes))]
    if way == "cce":
        limits = [None if cap is None else max(1, round(cap * size)) for size in stream.sizes]
        made: list[Any] = [CCEEmbedding(None, DIM, max_rows=limit) for limit in limits]
    else:
        made = [HashingTrickEmbedding(None, DIM, num_rows=count) for count in rows]
    collection = cce.EmbeddingCollection(dict.fromkeys(names), DIM, method="cce")
    for name, table in zip(names, made, strict=True):
        collection.tables[name] = table
    return collection


def held(model: nn.Module, way: str, stream: Stream, end: int) -> list[int]:
    """Bytes of each table in training, after so many rows."""
    if way == "full":
        return [MOMENTS * 4 * DIM * (1 + int(column[:end].max())) for column in stream.numbers.unbind(1)]
    made = model.embedding.tables.values()
    return [table.nbytes * (1 if way == "cce" else MOMENTS) for table in made]


def run(stream: Stream, way: str, cap: float | None, lr: float, nbytes: Sequence[int]) -> Record:
    torch.manual_seed(SEED)
    model = DeepFM(stream.sizes if way == "full" else [1] * len(stream.sizes), stream.dense.shape[1])
    if way != "full":
        model.embedding = tables(stream, way, cap, [max(1, size // (MOMENTS * 4 * DIM)) for size in nbytes])
    optimizer = cce.optim.Adam(model, lr=lr)
    ids = stream.numbers if way == "full" else stream.ids
    found: Record = {"ahead": [], "progressive": [], "nbytes": []}
    started = time.process_time()
    for day in torch.arange(len(ids)).chunk(DAYS):
        found["nbytes"].append(sum(held(model, way, stream, int(day[0]) + 1)))
        with torch.no_grad():
            parts = [(model(ids[rows], stream.dense[rows]), rows) for rows in day.split(8192)]
        losses = [binary_cross_entropy_with_logits(p, stream.labels[rows], reduction="sum") for p, rows in parts]
        found["ahead"].append(float(sum(losses)) / len(day))
        total = 0.0
        for rows in day.split(BATCH):
            optimizer.zero_grad()
            loss = binary_cross_entropy_with_logits(model(ids[rows], stream.dense[rows]), stream.labels[rows])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        found["progressive"].append(total / len(day))
    by_table = held(model, way, stream, int(day[-1]) + 1)
    found["nbytes"].append(sum(by_table))
    return found | {"by_table": by_table, "cpu_seconds": round(time.process_time() - started, 1)}


def chosen(records: Sequence[Record], way: str, cap: float | None) -> Record:
    """The record of the learning rate that days 2 to 5 choose; for baselines, of the best one on the days shown."""
    own, days = [each for each in records if (each["way"], each["cap"]) == (way, cap)], SHOWN
    if way == "cce":
        days = CHOSEN_BY
    return min(own, key=lambda record: sum(record["progressive"][days]))


def run_set(name: str, num_rows: int, caps: Sequence[float | None], keep: Path | None) -> list[Record]:
    known = [json.loads(line) for line in keep.read_text().splitlines()] if keep and keep.exists() else []
    found = [record for record in known if record["set"] == name]
    stream = SETS[name](num_rows)
    for way, cap in [("full", None), *((way, cap) for cap in caps for way in ("cce", "hash"))]:
        nbytes = chosen(found, "cce", cap)["by_table"] if way == "hash" else []
        for lr in RATES if cap is None else [chosen(found, way, None)["lr"]]:
            if any((each["way"], each["cap"], each["lr"]) == (way, cap, lr) for each in found):
                continue
            record = {"set": name, "way": way, "cap": cap, "lr": lr, "rows": num_rows, "ids": sum(stream.sizes)}
            record |= run(stream, way, cap, lr, nbytes) | {"oracle": stream.oracle, "machine": machine()}
            found.append(record)
            if keep:
                with keep.open("a") as file:
                    file.write(json.dumps(record) + "\n")
    return found


def show(records: Sequence[Record]) -> str:
    """Means of days 6 to 10, and bytes at the end."""
    lines = []
    full = {name: float(np.mean(chosen(records, "full", None)[name][SHOWN])) for name in ("ahead", "progressive")}
    most = chosen(records, "full", None)["nbytes"][-1]
    for way, cap in dict.fromkeys((record["way"], record["cap"]) for record in records):
        record = chosen(records, way, cap)
        scores = {name: float(np.mean(record[name][SHOWN])) for name in full}
        nbytes = record["nbytes"][-1]
        lines.append(
            [record["set"], way, "" if cap is None else f"{cap:.0%}", f"{record['lr']:g}"]
            + [f"{score:.4f} ({score - full[name]:+.4f})" for name, score in scores.items()]
            + [format_bytes(nbytes), f"{most / nbytes:.1f}"]
        )
    headers = ["stream", "tables", "cap", "lr", "a day ahead (full)", "progressive (full)", "bytes", "times fewer"]
    oracle = np.mean(records[0]["oracle"][SHOWN] or [np.nan])
    return format_table(headers, lines, num_left=3) + ("" if np.isnan(oracle) else f"\nbest possible: {oracle:.4f}")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=None, choices=SETS)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(argv)
    if options.quick:
        print(show(run_set("synthetic", 10_000, (None, 0.1), None)), flush=True)
        return
    for name in options.sets or SETS:
        print(show(run_set(name, options.rows, CAPS, RECORDS)), flush=True)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
