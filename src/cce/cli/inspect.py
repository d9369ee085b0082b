"""`cce inspect`: what a run or a checkpoint holds, in words or as a page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from cce.cli.loading import add_data_set, add_trust, load
from cce.records import strict_json

EXAMPLE = """examples:
  cce inspect runs/clicks-cce
  cce inspect runs/clicks-cce/checkpoints/step-0000001000 --json
  cce inspect runs/clicks-cce --page
  cce inspect clicks.ccez --page clicks.html --data data/clicks"""
PAGE = "page.html"
BESIDE = ""  # what --page is without a FILE


def add_verb(verbs: Any) -> None:
    """Add the verb to the parser."""
    parser = verbs.add_parser(
        "inspect",
        help="show what a run or a checkpoint holds: tables, bytes, entropies, scores",
        description="Show what a run (its newest whole checkpoint) or a checkpoint holds: the parameters and bytes of "
        "every table, whether learned pointers have collapsed, the options, and the scores so far. With --page, write "
        "one HTML file about its best model: scores, tables, clusterings, nearest values, calibration, frozen sizes.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    about = "folder of a run or of a checkpoint; with --page also a pack (.ccez)"
    parser.add_argument("path", type=Path, metavar="RUN|CHECKPOINT", help=about)
    about = f"write a page instead (default: {PAGE} in the folder of the run, or beside a pack, under its name)"
    parser.add_argument("--page", nargs="?", type=str, const=BESIDE, default=None, metavar="FILE", help=about)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    add_data_set(parser)
    add_trust(parser)
    parser.set_defaults(run=run, device="cpu")


def run(options: argparse.Namespace) -> None:
    """Read a run or a checkpoint, and print what it holds or write its page."""
    if options.page is not None:
        _write_page(options)
        return
    from cce.training import inspect_checkpoint

    if options.data_set is not None:
        raise ValueError(f"data goes with --page, got {str(options.data_set)!r} without.")
    if options.path.is_file():
        raise ValueError(f"RUN must be a folder; a pack goes with --page, got the file {str(options.path)!r} without.")
    found = inspect_checkpoint(options.path, model=options.model, trust_model=options.trust_model)
    for line in found.damage:
        print(f"cce inspect: {line}", file=sys.stderr)
    print(strict_json(found.to_dict()) if options.json else str(found))


def _write_page(options: argparse.Namespace) -> None:
    from cce.report import write_run_page

    found = load(options)
    page = Path(options.page) if options.page != BESIDE else default_page(options.path)
    left_out = write_run_page(found, page, data=options.data_set)
    if options.json:
        print(strict_json({"page": str(page), "left_out": left_out}))
    else:
        print("\n".join([*(f"left out: {line}" for line in left_out), f"page: {page}"]))


def default_page(path: Path) -> Path:
    """`page.html` in the folder of a run, or what a pack is called, beside it."""
    from cce.runs import run_folder

    return path.with_suffix(".html") if path.is_file() else run_folder(path).path / PAGE
