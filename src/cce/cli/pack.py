"""`cce pack`: a run in one file."""

import argparse
from pathlib import Path

from cce.cli.loading import add_data_set
from cce.records import strict_json
from cce.text import format_bytes

HELP = "put a run in one file: model, options, scores, vocabularies"
DESCRIPTION = (
    "Put the best checkpoint of a run, its options and scores, and the vocabularies and transforms of "
    "its data set in one checksummed file. `cce predict`, `cce evaluate`, `cce embed` and cce.load_run "
    "take it in place of a run. It does not contain the code of your own model."
)
EXAMPLE = """examples:
  cce pack runs/clicks-cce -o one.ccez
  cce pack runs/clicks-cce -o one.ccez --data /elsewhere/clicks --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="RUN", help="folder of a run or of a checkpoint")
    parser.add_argument("-o", "--out", required=True, type=Path, metavar="FILE.ccez", help="file to write")
    add_data_set(parser)


def run(options: argparse.Namespace) -> None:
    from cce.runs import pack_run

    pack = pack_run(options.path, options.out, data=options.data_set)
    size = options.out.stat().st_size
    report = {"out": str(options.out), "bytes": size, "step": pack.step, "files": pack.manifest["files"]}
    lines = [f"{options.out}: step {pack.step:,}, {format_bytes(size)}"]
    if not pack.has_inputs:
        lines.append("without vocabularies: its data set is synthetic, and it can predict no raw rows")
    print(strict_json(report) if options.json else "\n".join(lines))
