"""The words typed in a shell: `cce VERB …`. Verbs load what they need when they are called, so help comes at once."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, NoReturn

from cce.cli import (
    demo,
    embed,
    evaluate,
    inspect,
    pack,
    plan,
    predict,
    prepare,
    report,
    sweep,
    theory,
    train,
    verify,
)
from cce.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; 0 if it went well, 2 with one clear line if not (bad input, a diverged run), 130 if interrupted."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (ValueError, TypeError, OSError, FloatingPointError, MemoryError) as error:
        print(f"cce {options.verb}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        print(f"cce {options.verb}: {str(error) or 'interrupted'}", file=sys.stderr)
        return 130
    return 0


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the list of all options, which `--help` shows."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see `{self.prog} --help`.\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="cce", description="Embedding tables 10 to 10,000 times smaller while they train.")
    parser.add_argument("--version", action="version", version=f"cce {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in (
        prepare,
        plan,
        train,
        sweep,
        evaluate,
        predict,
        embed,
        pack,
        inspect,
        report,
        verify,
        theory,
        demo,
    ):
        verb.add_verb(verbs)
    return parser
