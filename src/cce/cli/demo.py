"""`cce demo`: train DLRM with three kinds of table, on the best rows at hand."""

import argparse
from pathlib import Path

from cce.records import strict_json

HELP = "train DLRM with three kinds of table, and compare them"
DESCRIPTION = (
    "Train DLRM with full tables, with cce (three sizes from one training) and with hashed tables, and compare sizes "
    "and scores. The rows are ml1m.parquet in the folder CCE_DATA, if it is there; otherwise 327,346 flights that come "
    "with the package (they need pyarrow); otherwise synthetic clicks."
)
EXAMPLE = """examples:
  cce demo --out runs/demo
  CCE_DATA=~/data cce demo
  cce demo --rows 100000 --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder of the runs (default: %(default)s)")
    parser.add_argument("--rows", type=int, help="train on N synthetic clicks instead", metavar="N")


def run(options: argparse.Namespace) -> None:
    from cce.demo import RECORDS, demo_table, run_demo

    if options.out.exists() and not options.out.is_dir():
        raise NotADirectoryError(f"out must be a folder, got the file {str(options.out)!r}.")
    records, oracle_bce = run_demo(options.out, num_rows=options.rows, progress=not options.json)
    if options.json:
        print(strict_json({"oracle_bce": oracle_bce, "runs": [record.to_dict() for record in records]}))
        return
    print(demo_table(records, oracle_bce))
    print(f"for a page with charts: cce report {options.out / RECORDS}")
