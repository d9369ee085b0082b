"""One training, every size: bytes served against validation loss, and what `finalize` itself costs.

    python -m benchmarks.finalize [curves] [costs] [pages] [--data FOLDER] [--sets ml1m …] [--seeds 3] [--quick]

`curves` trains the DeepFM of `benchmarks.real_sets` on four of its sets with int8 rows, once for each seed, and lets
`cce.finalize` validate all its sizes. The test score is that of the size it chooses; no choice sees test rows. `costs`
finalizes tables of random rows near 3,000 centres: CPU seconds of all threads. `pages` writes the tables of
docs/sizes.md and docs/notes.md and the figure from the record. All three, unless told.
"""

import argparse
import json
import os
import time
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import nn

import cce
from benchmarks.real_sets.data import SETS, Rows, part_of, read_rows
from benchmarks.real_sets.models import DeepFM
from benchmarks.real_sets.tables import NAMES
from benchmarks.real_sets.ways import Job, fit, score
from benchmarks.side_by_side import RESULTS, keep
from cce.text import format_bytes, format_table

DIM = 16
RATES = {"ml1m": 6e-3, "anime": 3e-3, "bookcrossing": 3e-3, "criteo_dac80k": 3e-3}  # those of `real_sets`
SHAPES = ((1, 256), (1, 1024), (4, 256))
SHARES = (2, 4, 8, 16, 32)  # sizes of the table on the page: of the bytes of the rows
TOLERANCES = (0.0, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005)
BEGIN, END = "<!-- finalize: begin -->", "<!-- finalize: end -->"
HALVES = ("first half", "second half")  # of the validation rows
RECORD, FIGURE = RESULTS / "finalize.json", Path("docs/figures/sizes.svg")


def train_and_finalize(rows: Rows, lr: float, epochs: int, seed: int) -> dict[str, Any]:
    """The curve of one training, with losses of two halves of the validation rows, and the test score."""
    torch.manual_seed(seed)
    model = DeepFM(rows.sizes, rows.dense.shape[1])
    cce.compress(model)
    fit(Job(rows, model, lr, epochs, served=0, seed=seed), cce.optim.Adam(model, lr=lr))
    validation = rows.parts["validation"]
    shuffled = validation[torch.randperm(len(validation))]
    halves = rows._replace(parts=dict(zip(HALVES, shuffled.chunk(2), strict=True)))
    losses: dict[float, list[float]] = {}  # of the halves, by that of all

    def validate() -> float:
        both = [score(model, halves, half) for half in HALVES]
        losses[mean(both)] = both
        return mean(both)

    before = score(model, rows, "test")
    found = cce.finalize(model, validate=validate, curve=True, seed=seed)
    assert found.chosen is not None
    assert found.loss_before is not None
    sizes = [
        {"nbytes": size.nbytes, "bits": size.bits, "lost": size.distortion, "loss": size.loss}
        | {"halves": losses[size.loss]}
        for size in found.curve
        if size.loss is not None
    ]
    of_rows = {"nbytes": found.before, "loss": found.loss_before, "halves": losses[found.loss_before], "test": before}
    chosen = {"nbytes": found.nbytes, "loss": found.chosen.loss, "test": score(model, rows, "test")}
    full = {"nbytes": 4 * DIM * sum(rows.sizes), "kept": cce.summary(model).nbytes - found.nbytes}
    return {"curve": sizes, "rows": of_rows, "chosen": chosen, "full": full}


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
    y = {"field": "more", "type": "quantitative", "scale": {"type": "symlog", "constant": 0.0005, "nice": False}}
    spec = {
        "data": {"values": points},
        "height": 300,
        "mark": {"type": "line", "point": True, "clip": True},
        "encoding": {
            "x": x | {"title": "bytes served"},
            "y": y
            | {
                "title": "validation loss above int8 rows",
                "axis": {"values": [0, 0.0005, 0.002, 0.01, 0.05], "format": "~g"},
            },
            "color": {"field": "set", "type": "nominal", "title": None},
            "detail": {"field": "seed"},
        },
    }
    path.write_bytes(picture(spec, title="One training, every size", kind="svg"))


def measure_curves(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The curves of sets and seeds."""
    figures: list[dict[str, Any]] = []
    for name, lr in ((name, lr) for name, lr in RATES.items() if name in options.sets):
        rows = part_of(read_rows(options.data, name), num_rows=20_000 if options.quick else None)
        for seed in range(1 if options.quick else options.seeds):
            found = train_and_finalize(rows, lr, SETS[name][0], seed)
            figures.append({"set": NAMES[name], "seed": seed} | found)
            _print_curve(figures[-1])
    return figures


def measure_costs(options: argparse.Namespace) -> list[dict[str, Any]]:
    """CPU seconds of finalizing large tables."""
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
    return costs


def sizes_table(curves: list[dict[str, Any]]) -> str:
    """Sizes of the curve of the first seed, nearest to shares of the bytes of the rows."""
    lines = ["| served, validation BCE | int8 rows |" + "".join(f" 1/{share} |" for share in SHARES)]
    lines.append("|---|" + "--:|" * (len(SHARES) + 1))
    for each in (each for each in curves if each["seed"] == 0):
        wanted = (each["rows"]["nbytes"] / share for share in SHARES)
        found = [min(each["curve"], key=lambda size: max(size["nbytes"] / w, w / size["nbytes"])) for w in wanted]
        cells = [f"{format_bytes(size['nbytes'])}, {size['loss']:.4f}" for size in (each["rows"], *found)]
        lines.append(f"| {each['set']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def chosen_table(curves: list[dict[str, Any]]) -> str:
    """The size that validation chose, by set."""
    lines = ["| all tables, by seed | full | chosen | smaller by | test BCE of the rows | of the chosen size |"]
    lines.append("|---|" + "--:|" * 5)
    for name in dict.fromkeys(each["set"] for each in curves):
        own = [each for each in curves if each["set"] == name]
        served = [each["chosen"]["nbytes"] + each["full"]["kept"] for each in own]
        full = own[0]["full"]["nbytes"]
        cells = [format_bytes(full), ", ".join(map(format_bytes, served))]
        cells += [", ".join(f"{full / nbytes:.0f}" for nbytes in served)]
        cells += [", ".join(f"{each[form]['test']:.4f}" for each in own) for form in ("rows", "chosen")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def tolerance_table(curves: list[dict[str, Any]]) -> str:
    """Sizes chosen by one half of the validation rows, and what they lose on the other half; means of seeds."""
    names = list(dict.fromkeys(each["set"] for each in curves))
    lines = [f"| tolerance | {' | '.join(names)} |", "|---|" + "--:|" * len(names)]
    for tolerance in TOLERANCES:
        cells = []
        for name in names:
            both = [_by_half(each, half, tolerance) for each in curves if each["set"] == name for half in (0, 1)]
            share, more = (mean(values) for values in zip(*both, strict=True))
            cells.append(f"{share:.0%}, {more:+.4f}")
        lines.append(f"| {tolerance:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _by_half(training: dict[str, Any], half: int, tolerance: float) -> tuple[float, float]:
    """The smallest size within the tolerance by one half of the rows: its share of bytes, and its loss on the other."""
    rows, curve = training["rows"], training["curve"]
    good = [size for size in curve if size["halves"][half] <= rows["halves"][half] + tolerance]
    size = good[0] if good else min(curve, key=lambda size: size["halves"][half])
    return size["nbytes"] / rows["nbytes"], size["halves"][1 - half] - rows["halves"][1 - half]


def write_pages() -> None:
    """Tables and the figure from the record."""
    titles = [NAMES[name] for name in RATES]
    curves = sorted(json.loads(RECORD.read_text())["figures"]["curves"], key=lambda each: titles.index(each["set"]))
    sizes = f"{sizes_table(curves)}\n\nThe size that validation chose:\n\n{chosen_table(curves)}"
    for page, table in (("docs/sizes.md", sizes), ("docs/notes.md", tolerance_table(curves))):
        text = Path(page).read_text()
        before, rest = text.split(BEGIN)
        Path(page).write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.split(END)[1]}")
    draw_figure(curves, FIGURE)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["curves", "costs", "pages"], help="curves, costs, pages")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CCE_DATA", "../shared/data")))
    parser.add_argument("--sets", nargs="*", choices=RATES, default=list(RATES), metavar="SET")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="20,000 rows, one seed, 100,000 ids; nothing is kept")
    options = parser.parse_args(argv)
    for part, measure in (("curves", measure_curves), ("costs", measure_costs)):
        if part not in options.parts:
            continue
        figures = measure(options)
        if not options.quick:
            stored = json.loads(RECORD.read_text())["figures"]
            sets = {each.get("set") for each in figures}
            others = [each for each in stored.get(part, []) if part == "curves" and each["set"] not in sets]
            print(keep("finalize", stored | {part: others + figures}))
    if "pages" in options.parts and not options.quick:
        write_pages()


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
