"""`cce page`: one HTML file about a trained run."""

import argparse
from pathlib import Path

from cce.cli import add_run, load

HELP = "write a page about a trained run: scores, tables, clusterings, nearest values"
DESCRIPTION = (
    "Write one HTML file, which needs no network, about the best model of a run: scores, tables, clusterings, nearest "
    "values."
)
EXAMPLE = """examples:
  cce page runs/clicks-cce
  cce page clicks.ccez clicks.html --data data/clicks"""
PAGE = "page.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    about = f"file to write (default: {PAGE} in the folder of the run; for a pack, its name with .html)"
    parser.add_argument("out", type=Path, nargs="?", metavar="FILE", help=about)


def run(options: argparse.Namespace) -> None:
    from cce.runs import run_folder
    from cce_lab.report.run_page import write_run_page

    beside = options.path.with_suffix(".html") if options.path.is_file() else run_folder(options.path).path / PAGE
    page = options.out or beside
    left_out = write_run_page(load(options), page)
    print("\n".join([*(f"left out: {line}" for line in left_out), f"page: {page}"]))
