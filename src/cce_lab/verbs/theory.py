"""`cce theory`: run the paper's theory, and see what holds."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from time import perf_counter

from cce.files import write_atomic

NAMES = {
    "least-squares": "dense and sparse CCE for least squares, beside factorisations of the best table",
    "theory-practice": "dense CCE beside the bounds of the theorem and its corollary",
    "rate-distortion": "k-means at several rates beside planted clusters",
}
HELP = "run the paper's theory: print whether its claims held, and draw the figures"
DESCRIPTION = (
    "Run figures of the paper's theory. Prints whether the paper's claims held, with their evidence, and writes the "
    "data as JSON and, where vl-convert is installed, the figure as SVG. A claim that did not hold is a result: the "
    "exit code is 0."
)
EXAMPLE = "names:\n" + "\n".join(f"  {name:16} {what}" for name, what in NAMES.items())
EXAMPLE += (
    "\n\nexamples:\n  cce theory rate-distortion\n  cce theory least-squares theory-practice --out figures --seed 1"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "which figures (default: %(default)s); see below"
    parser.add_argument("names", metavar="NAME", nargs="*", choices=[*NAMES, "all"], default="all", help=about)
    parser.add_argument(
        "--out", type=Path, default=Path("runs/theory"), help="folder of data and figures (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="small sizes, to try: claims may not hold there")


def run(options: argparse.Namespace) -> None:
    from cce.checks import check_range
    from cce.text import format_table
    from cce_lab.report.plots import draw_figure
    from cce_lab.report.vega import HINT, can_draw
    from cce_lab.theory import FIGURES

    check_range("seed", options.seed, 0, 2**63)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in NAMES if "all" in options.names else options.names:
        start = perf_counter()
        figure = FIGURES[name](seed=options.seed, quick=options.quick)
        files = [options.out / f"{name}.json"]
        write_atomic(files[0], json.dumps(asdict(figure), indent=1, ensure_ascii=False) + "\n")
        files += [draw_figure(figure, options.out)] if can_draw() else []
        held = sum(claim.held for claim in figure.claims)
        rows.append((name, held, len(figure.claims) - held, f"{perf_counter() - start:.0f}"))
        print(f"{figure}\n\nfiles: {', '.join(map(str, files))}\n", flush=True)
    print(format_table(("figure", "claims held", "did not hold", "seconds"), rows))
    if not can_draw():
        print(f"no picture: {HINT}")
