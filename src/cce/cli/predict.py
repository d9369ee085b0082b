"""`cce predict`: the probabilities of raw rows."""

from __future__ import annotations

import argparse
import sys

from cce.cli.loading import add_device, add_run, check_rows, load
from cce.data import FORMATS, STANDARD
from cce.records import strict_json

HELP = "give raw rows their probabilities, by a trained run"
DESCRIPTION = (
    "Give each row of a CSV, TSV or Parquet file its probability, in order, by the best "
    "checkpoint of a run; or each row of a split of a data set that `cce prepare` made. Rows need no label. They "
    "are read and written block by block."
)
EXAMPLE = """examples:
  cce predict runs/clicks-cce tomorrow.csv --out predictions.parquet
  cce predict one.ccez tomorrow.parquet --out predictions.csv
  zcat rows.csv.gz | cce predict one.ccez - --format csv --out - > predictions.csv"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    add_run(parser)
    about = "the file of raw rows, or the folder of a data set; - for standard input"
    parser.add_argument("raw", metavar="RAW|DATA", help=about)
    parser.add_argument("--split", default=None, help="of a data set: train, validation or test (default: test)")
    parser.add_argument("--out", required=True, metavar="FILE", help="where to write; - for standard output")
    about = "what RAW is, if its name does not say so (and standard output, if --out is -)"
    parser.add_argument("--format", choices=tuple(FORMATS), default=None, help=about)
    add_device(parser)


def run(options: argparse.Namespace) -> None:
    """Predict, and say how many rows there were."""
    from cce.runs import write_predictions

    if not options.out:
        raise ValueError("--out must be a file, or - for standard output, got ''.")
    check_rows(options.raw, options.out)
    found = load(options)
    to_standard = options.out == STANDARD
    blocks = found.predict_blocks(
        options.raw,
        split=options.split,
        format=options.format,
        progress=not options.json and not to_standard,
    )
    num_rows = write_predictions(blocks, options.out, _form_of_output(options))
    told = {"checkpoint": str(found.path), "rows": num_rows, "out": options.out}
    stream = sys.stderr if to_standard else sys.stdout
    print(strict_json(told) if options.json else f"{num_rows:,} rows: {options.out}", file=stream)


def _form_of_output(options: argparse.Namespace) -> str | None:
    """That of the input on standard output, if it is text; by the name of a file."""
    if options.out != STANDARD:
        return None
    return options.format if options.format not in (None, "parquet") else "csv"
