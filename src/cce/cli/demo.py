"""`cce demo`: train DLRM with three kinds of table, on a click log that it makes itself."""

from __future__ import annotations

import argparse
from pathlib import Path

from cce.records import strict_json

HELP = "make a click log, train DLRM with three kinds of table, and compare them"
DESCRIPTION = (
    "Make a synthetic click log with hidden clusters, train DLRM on it with full tables, with cce, in "
    "several sizes from one training, and with the hashing trick, and compare their sizes and scores."
)
EXAMPLE = """example:
  cce demo --out runs/demo
  cce demo --rows 100000 --epochs 3 --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder of the runs (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=None, help="rows of the click log (default: 300000)")
    parser.add_argument("--epochs", type=int, default=None, help="passes over the rows (default: 4)")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random (default: %(default)s)")


def run(options: argparse.Namespace) -> None:
    """Train and print."""
    from cce.demo import RECORDS, DemoConfig, demo_table, run_demo

    given = {"num_rows": options.rows, "epochs": options.epochs, "seed": options.seed}
    config = DemoConfig(**{name: value for name, value in given.items() if value is not None})
    if options.out.exists() and not options.out.is_dir():
        raise NotADirectoryError(f"out must be a folder, got the file {str(options.out)!r}.")
    options.out.mkdir(parents=True, exist_ok=True)
    records, oracle_bce = run_demo(config, options.out, progress=not options.json)
    if options.json:
        print(strict_json({"oracle_bce": oracle_bce, "runs": [record.to_dict() for record in records]}))
        return
    print(demo_table(records, oracle_bce))
    print(f"a page with charts: cce report {options.out / RECORDS}")
