"""What verbs share: values as they are typed, the options that say where a run is, and its loading."""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from cce.text import parse_bytes

if TYPE_CHECKING:
    from cce.runs import LoadedRun


def typed_path(word: str) -> Path:
    """A path, which is not empty: Python takes an empty one for the present folder."""
    if not word:
        raise argparse.ArgumentTypeError("must be a path, got ''")
    return Path(word)


def typed_count(word: str) -> int | str:
    """A whole number, or a word such as auto."""
    return int(word) if word.isdecimal() else word


def typed_bytes(word: str) -> int:
    """Bytes, such as 50000000 or 50MB."""
    try:
        return parse_bytes(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="RUN", help="folder of a run or of a checkpoint, or a pack (.ccez)")
    add_data_set(parser)
    add_model(parser)


def add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", default="auto", help="cpu, cuda, or auto, which stays on the CPU: nothing has run on a GPU yet"
    )


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the way to let the code of a saved model run."""
    parser.add_argument("--model", help="your own model, again as FILE.py:NAME; its code is run only if named here")


def add_data_set(parser: argparse.ArgumentParser) -> None:
    about = "data set that the run was trained on, which has the vocabularies, if it has moved"
    parser.add_argument("--data", type=Path, metavar="FOLDER", dest="data_set", help=about)


def load(options: argparse.Namespace) -> LoadedRun:
    """Load the run; better checkpoints that had to be passed over are named."""
    from cce.runs import load_run

    with warnings.catch_warnings(action="ignore"):
        device = getattr(options, "device", "cpu")
        found = load_run(options.path, data=options.data_set, device=device, model=options.model)
    for line in found.damage:
        print(f"cce {options.verb}: {line}", file=sys.stderr)
    return found
