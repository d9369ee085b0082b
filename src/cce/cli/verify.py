"""`cce verify`: is everything in a folder as it was written?"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from cce.run_folder import RunFolder

if TYPE_CHECKING:
    from cce.data import Verification

HELP = "check every file of a prepared data set or of a run"
DESCRIPTION = (
    "Compare every file of a data set made by `cce prepare` with its checksum. Or check every file of a run: options, "
    "log, record, and checkpoints, whose tensors must fit the model. No model code is run."
)
EXAMPLE = """examples:
  cce verify runs/clicks
  cce verify runs/clicks-cce
  cce verify runs/clicks --json

Exit code 0: no problems. 2: there are problems; the first one is printed, and --json lists all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DATA|RUN", help="the folder to check")


def run(options: argparse.Namespace) -> None:
    found = _verify(options.folder)
    if options.json:
        print(json.dumps(vars(found)))
    elif not found.problems:
        checked = ", ".join(f"{count:,} {what}" for what, count in found.checked.items())
        print(f"{found.path}: {found.kind} is right ({checked})")
    if found.problems:
        others = f" ({len(found.problems) - 1} more: --json lists them)" if len(found.problems) > 1 else ""
        raise ValueError(found.problems[0] + others)


def _verify(folder: Path) -> Verification:
    """Verify a data set or a run, whichever the folder holds."""
    if not folder.is_dir():
        raise FileNotFoundError(f"DATA|RUN must be a folder, got {str(folder)!r}.")
    if RunFolder(folder).is_begun:
        from cce.training import verify_run

        return verify_run(folder)
    from cce.data import verify_data

    return verify_data(folder)
