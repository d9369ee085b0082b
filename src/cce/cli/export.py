"""`cce export`: a trained run as files that are served without this package."""

import argparse
import sys
from pathlib import Path

from cce.cli.loading import add_run, load
from cce.records import strict_json
from cce.serving import FORMAT_NAMES
from cce.text import format_bytes

HELP = "write a trained run for serving: ONNX, torch.export, or tables that NumPy reads"
DESCRIPTION = (
    "Freeze the best model of a run and write it to a new folder: as a whole program (onnx, pt2), or "
    "as tables and weights that NumPy reads (safetensors), with the vocabularies that turn raw values into "
    "ids. With --verify, the result is run on held-out rows and over all ids; if it differs from the run, "
    "nothing is left behind. With --since, write what has changed since such tables were exported: a delta, which "
    "services apply while they serve."
)
EXAMPLE = """examples:
  cce export runs/clicks-cce out/clicks --format onnx --verify data/clicks
  cce export runs/clicks-cce out/clicks-pt2 --format pt2
  cce export runs/clicks-cce out/clicks-tables --format safetensors --verify data/clicks --json
  cce export runs/daily --since out/daily"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("out", type=Path, nargs="?", metavar="OUT", help="new folder to write")
    about = "folder of an export of tables: write the next delta into it, and bring its model.safetensors up to date"
    parser.add_argument("--since", type=Path, metavar="EXPORT", help=about)
    parser.add_argument("--format", choices=FORMAT_NAMES, help="files to write (default: safetensors)")
    parser.add_argument(
        "--verify", type=Path, metavar="DATA", help="data set on which to compare the export with the run"
    )


def run(options: argparse.Namespace) -> None:
    from cce.serving import delta, export_run

    if (options.out is None) == (options.since is None):
        raise ValueError(f"give one of OUT and --since, got {'neither' if options.out is None else 'both'}.")
    if options.since is not None:
        for name in ("format", "verify"):
            if getattr(options, name) is not None:
                raise ValueError(f"--{name} does not go with --since, got {str(getattr(options, name))!r}.")
        found = delta(load(options).model, since=options.since)
        print(strict_json(found.to_dict()) if options.json else found)
        return
    made = export_run(load(options), options.out, format=options.format or "safetensors", verify=options.verify)
    if made.missing:
        print(f"cce export: no vocabularies, so inputs are ids: {made.missing}", file=sys.stderr)
    if options.json:
        print(strict_json(made.to_dict()))
        return
    print(f"{made.format}: {format_bytes(made.nbytes)} in {made.path}, tables {format_bytes(made.table_nbytes)}")
    if made.verification is not None:
        print(f"verified: {made.verification}")
