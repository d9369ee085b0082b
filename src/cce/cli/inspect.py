"""`cce inspect`: what a run or a checkpoint holds."""

import argparse
import sys
from pathlib import Path

from cce.cli.loading import add_model
from cce.records import strict_json

HELP = "show what a run or a checkpoint holds: tables, bytes, entropies, scores"
DESCRIPTION = (
    "Show what a checkpoint, or the newest intact one of a run, holds: the parameters and bytes of each table, whether "
    "learned pointers have collapsed, the options, and the scores so far."
)
EXAMPLE = """examples:
  cce inspect runs/clicks-cce
  cce inspect runs/clicks-cce/checkpoints/step-0000001000 --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="RUN|CHECKPOINT", help="folder of a run or of a checkpoint")
    add_model(parser)


def run(options: argparse.Namespace) -> None:
    from cce.training import inspect_checkpoint

    if options.path.is_file():
        raise ValueError(f"RUN must be a folder, got the file {str(options.path)!r}.")
    found = inspect_checkpoint(options.path, model=options.model)
    for line in found.damage:
        print(f"cce inspect: {line}", file=sys.stderr)
    print(strict_json(found.to_dict()) if options.json else str(found))
