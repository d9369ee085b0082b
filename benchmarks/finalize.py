"""One training, every size: bytes served against validation loss, and what `finalize` itself costs.

    python -m benchmarks.finalize [--data FOLDER] [--seeds 3] [--figure docs/figures/sizes.svg] [--quick]

The first part trains the DeepFM of `benchmarks.real_sets` on four of its sets with int8 rows, once for each seed, and
lets `cce.finalize` validate all its sizes. The test score is that of the size it chooses; no choice sees test rows. The
second part finalizes tables of random rows near 3,000 centres: CPU seconds of all threads.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import cce
from benchmarks.real_sets.data import SETS, Rows, part_of, read_rows
from benchmarks.real_sets.models import DeepFM
from benchmarks.real_sets.tables import NAMES
from benchmarks.real_sets.ways import Job, fit, score
from benchmarks.side_by_side import keep
from cce.text import format_bytes, format_table

DIM = 16
RATES = {"ml1m": 6e-3, "anime": 3e-3, "bookcrossing": 3e-3, "criteo_dac80k": 3e-3}  # those of `real_sets`
SHAPES = ((1, 256), (1, 1024), (4, 256))


def train_and_finalize(rows: Rows, lr: float, epochs: int, seed: int) -> dict[str, Any]:
    """The curve of one training, and the test score before and after."""
    torch.manual_seed(seed)
    model = DeepFM(rows.sizes, rows.dense.shape[1])
    cce.compress(model)
    fit(Job(rows, model, lr, epochs, served=0, seed=seed), cce.optim.Adam(model, lr=lr))
    before = score(model, rows, "test")
    found = cce.finalize(model, validate=lambda: score(model, rows, "validation"), curve=True, seed=seed)
    assert found.chosen is not None
    sizes = [
        {"nbytes": size.nbytes, "bits": size.bits, "lost": size.distortion, "loss": size.loss} for size in found.curve
    ]
    rows_of = {"nbytes": found.before, "loss": found.loss_before, "test": before}
    chosen = {"nbytes": found.nbytes, "loss": found.chosen.loss, "test": score(model, rows, "test")}
    return {"curve": sizes, "rows": rows_of, "chosen": chosen}


def finalize_rows(num_ids: int, shape: tuple[int, int]) -> dict[str, Any]:
    """CPU seconds of one finalize."""
    draw = torch.Generator().manual_seed(0)
    table = cce.embeddings.CCEEmbedding(
        num_ids, DIM, counts=torch.full((num_ids,), 2, dtype=torch.int32), generator=draw
    )
    centres = 20 * torch.randn(3_000, DIM, generator=draw)
    for first in range(1, num_ids + 1, 1 << 18):
        own = table.rows.codes[first : min(first + (1 << 18), num_ids + 1)]
        near = centres[torch.randint(3_000, (len(own),), generator=draw)]
        own.copy_((near + 12 * torch.randn(len(own), DIM, generator=draw)).clamp(-127, 127))
    model = nn.ModuleDict({"table": table})
    started = time.process_time()
    found = cce.finalize(model, num_columns=shape[0], num_rows=shape[1], seed=0)
    seconds = time.process_time() - started
    figures = {"ids": num_ids, "shape": list(shape), "seconds": seconds}
    return figures | {"rows": num_ids * (DIM + 3), "served": found.nbytes}


def draw_figure(figures: list[dict[str, Any]], path: Path) -> None:
    """Bytes served against validation loss above that of the int8 rows, one line for each training."""
    from cce_lab.report.vega import picture

    points = [
        {"set": each["set"], "seed": each["seed"], "bytes": size["nbytes"], "more": size["loss"] - each["rows"]["loss"]}
        for each in figures
        for size in each["curve"]
    ]
    x = {"field": "bytes", "type": "quantitative", "scale": {"type": "log"}, "axis": {"format": "~s"}}
    y = {"field": "more", "type": "quantitative", "scale": {"type": "symlog", "constant": 0.0005}}
    spec = {
        "data": {"values": points},
        "height": 300,
        "mark": {"type": "line", "point": True, "clip": True},
        "encoding": {
            "x": x | {"title": "bytes served"},
            "y": y | {"title": "validation loss above int8 rows", "axis": {"values": [0, 0.0005, 0.002, 0.01, 0.05]}},
            "color": {"field": "set", "type": "nominal", "title": None},
            "detail": {"field": "seed"},
        },
    }
    path.write_bytes(picture(spec, title="One training, every size", kind="svg"))


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CCE_DATA", "../shared/data")))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--figure", type=Path, help="draw the curves into this file (needs vl-convert-python)")
    parser.add_argument("--quick", action="store_true", help="100,000 rows, one seed, 100,000 ids")
    options = parser.parse_args(argv)
    figures: list[dict[str, Any]] = []
    for name, lr in RATES.items():
        rows = part_of(read_rows(options.data, name), num_rows=20_000 if options.quick else None)
        for seed in range(1 if options.quick else options.seeds):
            found = train_and_finalize(rows, lr, SETS[name][0], seed)
            figures.append({"set": NAMES[name], "seed": seed} | found)
            _print_curve(figures[-1])
    finalize_rows(300_000, SHAPES[0])  # compiled loops are compiled
    sizes = (100_000,) if options.quick else (1_000_000, 10_000_000)
    costs = [finalize_rows(num_ids, shape) for num_ids in sizes for shape in SHAPES]
    lines = [
        (
            *(f"{each['ids']:,}", "{} × {:,}".format(*each["shape"]), f"{each['seconds']:.1f}"),
            *map(format_bytes, (each["rows"], each["served"])),
        )
        for each in costs
    ]
    print(format_table(("ids", "columns × rows", "CPU s", "int8 rows", "served"), lines, num_left=2))
    if options.figure is not None:
        draw_figure(figures, options.figure)
    if not options.quick:
        print(keep("finalize", [*figures, *costs]))
    return [*figures, *costs]


def _print_curve(figures: dict[str, Any]) -> None:
    lines = [
        (format_bytes(size["nbytes"]), f"{size['bits']:.1f}", f"{size['lost']:.2%}", f"{size['loss']:.4f}")
        for size in figures["curve"]
    ]
    print(figures["set"], "seed", figures["seed"])
    print(format_table(("served", "bits per id", "variance lost", "validation"), lines))
    rows, chosen = figures["rows"], figures["chosen"]
    for what, each in (("int8 rows", rows), ("chosen", chosen)):
        print(f"{what}: {format_bytes(each['nbytes'])}, validation {each['loss']:.4f}, test {each['test']:.4f}")


if __name__ == "__main__":
    main()
