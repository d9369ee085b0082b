"""`cce theory`: run the paper's theory, and see what holds."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cce.theory import Figure

NAMES = {
    "least-squares": "dense and sparse CCE for least squares, beside factorisations of the best table",
    "theory-practice": "dense CCE beside the bounds of the theorem",
    "noise": "smart noise against IID noise, and what the theorem's restricted codebook costs",
    "lemma": "E[x / (p x + (1 - p) y)] for exponential and chi-square variables",
    "factorisation": "k-means as a factorisation of matrices",
    "table-collapse": "entropies of pointers: CE, CCE, product quantisation and circular clustering",
}
EXAMPLE = "names:\n" + "\n".join(f"  {name:16} {what}" for name, what in NAMES.items())
EXAMPLE += (
    "\n\nexamples:\n  cce theory noise\n  cce theory least-squares --out figures --seed 1\n  cce theory lemma --json"
)


def add_verb(verbs: Any) -> None:
    """Add the verb to the parser's."""
    parser = verbs.add_parser(
        "theory",
        help="run the paper's theory: print its numbers and whether its claims held, and draw the figure",
        description="Run one figure of the paper's theory. Prints its numbers and whether the paper's claims held, and "
        "writes the data as JSON and, where altair and vl-convert are installed, the figure as SVG and PNG.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", choices=NAMES, help="which figure; see below")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/theory"), help="folder of data and figure (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="small sizes, to try: claims may not hold there")
    parser.add_argument("--json", action="store_true", help="print the data as JSON instead of a table")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Compute, print, write and draw."""
    from cce.checks import check_range
    from cce.report.charts import can_draw, draw_figure
    from cce.theory.figures import FIGURES

    check_range("seed", options.seed, 0, 2**63)
    options.out.mkdir(parents=True, exist_ok=True)
    figure = FIGURES[options.name](seed=options.seed, quick=options.quick, progress=not options.json)
    files = [_write(figure, options.out), *(draw_figure(figure, options.out) if can_draw() else ())]
    if options.json:
        print(json.dumps({**figure.to_dict(), "files": [str(file) for file in files]}))
        return
    print(figure)
    print()
    print(f"files: {', '.join(map(str, files))}")
    if not can_draw():
        print("no picture: it needs altair and vl-convert-python, pip install 'clustered-embeddings[report]'")


def _write(figure: Figure, folder: Path) -> Path:
    """The data as JSON, whole or not at all."""
    path = folder / f"{figure.name}.json"
    aside = path.with_name(f".{path.name}")
    aside.write_text(json.dumps(figure.to_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(aside, path)
    return path
