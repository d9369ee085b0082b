"""`cce page`: one HTML file about a trained run."""

import argparse
import sys
import warnings
from pathlib import Path

HELP = "write a page about a trained run: scores, tables, clusterings, nearest values"
EXAMPLE = """examples:
  cce page runs/clicks-cce
  cce page clicks.ccez clicks.html --data data/clicks"""
PAGE = "page.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write one HTML file, which needs no network, about the best model of a run: scores, tables, clusterings, "
        "nearest values."
    )
    parser.epilog = EXAMPLE
    parser.add_argument("path", type=Path, metavar="RUN", help="folder of a run or of a checkpoint, or a pack (.ccez)")
    about = f"file to write (default: {PAGE} in the folder of the run; for a pack, its name with .html)"
    parser.add_argument("out", type=Path, nargs="?", metavar="FILE", default=None, help=about)
    about = "data set that the run was trained on, if it has moved"
    parser.add_argument("--data", type=Path, metavar="FOLDER", default=None, help=about)
    parser.add_argument(
        "--model", default=None, help="your own model, again as FILE.py:NAME; its code is run only if named here"
    )


def run(options: argparse.Namespace) -> None:
    from cce.runs import load_run, run_folder
    from cce_lab.report.run_page import write_run_page

    with warnings.catch_warnings(action="ignore"):  # of damage, which is printed
        found = load_run(options.path, data=options.data, device="cpu", model=options.model)
    for line in found.damage:
        print(f"cce page: {line}", file=sys.stderr)
    beside = options.path.with_suffix(".html") if options.path.is_file() else run_folder(options.path).path / PAGE
    page = options.out or beside
    left_out = write_run_page(found, page)
    print("\n".join([*(f"left out: {line}" for line in left_out), f"page: {page}"]))
