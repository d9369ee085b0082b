"""`cce theory`: run the paper's theory, and see what holds."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from time import perf_counter

from cce.files import write_atomic

NAMES = {
    "least-squares": "dense and sparse CCE for least squares, beside factorisations of the best table",
    "theory-practice": "dense CCE beside the bounds of the theorem and its corollary",
    "noise": "smart noise against IID noise, and what the theorem's restricted codebook costs",
    "lemma": "E[x / (p x + (1 - p) y)] for exponential and chi-square variables",
    "table-collapse": "entropies of pointers: CE, CCE, product quantisation and circular clustering",
    "rate-distortion": "k-means at several rates beside planted clusters",
}
ALL = "all"
WORDS = {**NAMES, ALL: "every one of these, and a table of what held"}
HELP = "run the paper's theory: print its results and whether its claims held, and draw the figures"
EXAMPLE = "names:\n" + "\n".join(f"  {name:16} {what}" for name, what in WORDS.items())
EXAMPLE += (
    "\n\nexamples:\n  cce theory noise\n  cce theory least-squares --out figures --seed 1\n  cce theory lemma --json\n"
    "  cce theory all --out figures"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.description = (
        "Run one figure of the paper's theory, or all. Prints its results and whether the paper's claims "
        "held, and writes the data as JSON and, where vl-convert is installed, the figure as SVG and PNG. "
        "A claim that did not hold is a result: the exit code is 0."
    )
    parser.epilog = EXAMPLE
    parser.add_argument("name", metavar="NAME", choices=WORDS, help="which figure, or all; see below")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/theory"), help="folder of data and figure (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="small sizes, to try: claims may not hold there")
    parser.add_argument("--json", action="store_true", help="print the data as JSON instead of a table; of all, a list")


def run(options: argparse.Namespace) -> None:
    """Compute, print, write and draw."""
    from tqdm import tqdm

    from cce.checks import check_range
    from cce.text import format_table
    from cce_lab.report import HINT, can_draw, draw_figure
    from cce_lab.theory import FIGURES

    check_range("seed", options.seed, 0, 2**63)
    options.out.mkdir(parents=True, exist_ok=True)
    is_all = options.name == ALL
    quiet = None if is_all and not options.json else True  # None leaves it to the terminal
    printed, rows = [], []
    for name in tqdm(NAMES if is_all else [options.name], desc="figures", disable=quiet):
        start = perf_counter()
        figure = FIGURES[name](seed=options.seed, quick=options.quick, progress=not options.json)
        files = [options.out / f"{figure.name}.json"]
        write_atomic(files[0], json.dumps(figure.to_dict(), indent=1, ensure_ascii=False) + "\n")
        files += draw_figure(figure, options.out) if can_draw() else ()
        printed.append({**figure.to_dict(), "files": [str(file) for file in files]})
        held = sum(claim.held for claim in figure.claims)
        rows.append((figure.name, held, len(figure.claims) - held, f"{perf_counter() - start:.0f}"))
        if not options.json:
            tqdm.write(f"{figure}\n\nfiles: {', '.join(map(str, files))}" + "\n" * is_all)
    if options.json:
        print(json.dumps(printed if is_all else printed[0]))
        return
    if is_all:
        total = ("all", sum(row[1] for row in rows), sum(row[2] for row in rows), "")
        print(format_table(("figure", "claims held", "did not hold", "seconds"), [*rows, total]))
    if not can_draw():
        print(f"no picture: {HINT}")
