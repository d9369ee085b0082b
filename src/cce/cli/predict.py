"""`cce predict`: the probabilities of raw rows."""

import argparse
import os

from cce.cli.loading import add_device, add_run, load
from cce.records import strict_json

HELP = "predict the probability of each raw row with a trained run"
DESCRIPTION = (
    "Predict the probability of each row of a CSV, TSV or Parquet file, or of a split of a data set made by "
    "`cce prepare`, in order, with the best checkpoint of a run. Rows need no label. They are read and written in "
    "blocks."
)
EXAMPLE = """examples:
  cce predict runs/clicks-cce tomorrow.csv --out predictions.parquet
  cce predict one.ccez tomorrow.csv.gz --out predictions.csv"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("raw", metavar="RAW|DATA", help="file of raw rows, or folder of a data set")
    parser.add_argument("--split", help="split of a data set: train, validation or test (default: test)")
    parser.add_argument("--out", required=True, metavar="FILE", help="file to write: CSV, TSV or Parquet, by its name")
    add_device(parser)


def run(options: argparse.Namespace) -> None:
    from cce.runs import write_predictions

    if not options.out:
        raise ValueError("--out must be a file, got ''.")
    if all(map(os.path.exists, (options.raw, options.out))) and os.path.samefile(options.raw, options.out):
        raise ValueError(f"--out must be another file than that of the rows, got {options.out!r} for both.")
    found = load(options)
    blocks = found.predict_blocks(options.raw, split=options.split, progress=not options.json)
    num_rows = write_predictions(blocks, options.out)
    report = {"checkpoint": str(found.path), "rows": num_rows, "out": options.out}
    print(strict_json(report) if options.json else f"{num_rows:,} rows: {options.out}")
