"""`cce prepare baked`: the data set of a trained run, with its learned pointers in place of ids."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cce.cli.loading import add_run, add_trust, load

EXAMPLE = """examples:
  cce prepare baked runs/clicks-cce runs/clicks-baked
  cce evaluate runs/clicks-cce runs/clicks-baked
  cce train runs/clicks-baked --method cce --cap 8000 --start-from runs/clicks-cce --out runs/more"""


def add_kind(kinds: Any) -> None:
    """Add the kind to the parser of `cce prepare`."""
    about = "the data set of a trained run, its ids replaced by the pointers that the run has learned"
    parser = kinds.add_parser(
        "baked",
        help=about,
        description=f"Write {about}. Models then need no table of pointers to train on, to score or to predict these "
        "rows. Pointers must be final: rows hold those of the run's best checkpoint.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run(parser)
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder of the baked data set; must not exist yet")
    about = "another data set with the columns and ids of the run's, or the run's own if it is not where it was"
    parser.add_argument("--data", type=Path, metavar="FOLDER", default=None, dest="data_set", help=about)
    parser.add_argument("--json", action="store_true", help="print a summary as JSON, and no progress")
    add_trust(parser)
    parser.set_defaults(device="cpu")


def bake(options: argparse.Namespace) -> dict[str, Any]:
    """Bake, and return the manifest."""
    from cce.data import check_new
    from cce.runs import bake_data

    check_new(options.out)
    return bake_data(load(options), options.out, data=options.data_set, progress=not options.json)
