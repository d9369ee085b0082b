"""`cce finalize`: choose another size for the tables of a finished run, which keeps its int8 rows for it."""

import argparse
from pathlib import Path
from typing import Any

from cce.cli.loading import add_model, typed_bytes, typed_count
from cce.records import strict_json
from cce.text import format_bytes

HELP = "choose the size of a trained run: train once, serve any size"
DESCRIPTION = (
    "Choose another size for the tables of a finished run of cce. The run keeps its int8 rows, so nothing is trained "
    "again. Without an option, the smallest size is chosen that loses at most 0.0005 on the validation rows. The model "
    "is tested again, and the run gets a new record. If interrupted, the run has either the old or the new tables."
)
EXAMPLE = """examples:
  cce finalize runs/clicks-cce --curve
  cce finalize runs/clicks-cce --nbytes 1MB
  cce finalize runs/clicks-cce --bits 8 --refits auto
  cce finalize runs/clicks-cce --discard"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="RUN", help="folder of a finished run")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--curve", action="store_true", help="show all sizes and write sizes.json; change nothing else")
    what.add_argument("--nbytes", type=typed_bytes, help="maximum bytes of all tables together, such as 1MB")
    what.add_argument("--bits", type=float, help="maximum bits of pointers per id, such as 8")
    what.add_argument(
        "--tolerance", type=float, help="loss of validation score against int8 rows that is allowed, such as 0.0005"
    )
    what.add_argument("--discard", action="store_true", help="remove the int8 rows: the size is final")
    parser.add_argument("--refits", type=typed_count, default=0, help="rounds of refits, or auto (default: 0)")
    add_model(parser)


def run(options: argparse.Namespace) -> None:
    from cce.training import curve_of_run, discard_rows, finalize_run, sizes_table

    if options.discard:
        print(f"{options.path}: int8 rows are removed, {format_bytes(discard_rows(options.path))}")
        return
    how: dict[str, Any] = {"progress": not options.json, "model": options.model}
    if options.curve:
        sizes = curve_of_run(options.path, **how)
        print(strict_json(sizes) if options.json else sizes_table(sizes))
        return
    from cce.cli.train import as_text

    chosen = {name: getattr(options, name) for name in ("nbytes", "bits", "tolerance", "refits")}
    record = finalize_run(options.path, **chosen, **how)
    out = {"out": str(options.path), **record.to_dict()}
    print(strict_json(out) if options.json else as_text(record, options.path))
