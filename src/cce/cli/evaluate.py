"""`cce evaluate`: the scores of a checkpoint on a split of a data set, or on raw rows."""

import argparse

from cce.cli.loading import add_device, add_run, load
from cce.evaluation import format_scores, list_metrics
from cce.records import strict_json

HELP = "score a checkpoint on a split of a data set, or on raw rows"
DESCRIPTION = (
    "Score a checkpoint on a split of a data set made by `cce prepare`, or on a CSV, TSV or Parquet file of raw rows "
    "with labels. For a run, that is the checkpoint with the best validation score."
)
EXAMPLE = """examples:
  cce evaluate runs/clicks-cce runs/clicks
  cce evaluate runs/clicks-cce/checkpoints/step-0000001000 runs/clicks --split validation --json
  cce evaluate runs/clicks-cce runs/clicks --metrics auc ece
  cce evaluate one.ccez tomorrow.csv"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("rows", metavar="DATA|RAW", help="folder of a data set, or a file of raw rows with labels")
    parser.add_argument("--split", help="split of a data set: train, validation or test (default: test)")
    about = f"metrics to compute: {', '.join(list_metrics())} (default: those of the run)"
    parser.add_argument("--metrics", nargs="+", metavar="NAME", help=about)
    add_device(parser)


def run(options: argparse.Namespace) -> None:
    loaded = load(options)
    found = loaded.evaluate(options.rows, split=options.split, metrics=options.metrics)
    where = {"checkpoint": str(loaded.path), "split": found.name, "rows": found.num_rows}
    if options.json:
        print(strict_json(where | {"scores": found.scores}))
    else:
        print(f"{found.name}, {found.num_rows:,} rows: {format_scores(found.scores)}")
        print(f"checkpoint: {loaded.path}")
