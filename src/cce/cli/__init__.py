"""The words typed in a shell: `cce VERB …`. Verbs load what they need when they are called, so help comes at once."""

from __future__ import annotations

import argparse
import os
import select
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from cce.cli import (
    demo,
    embed,
    evaluate,
    export,
    finalize,
    inspect,
    list_names,
    pack,
    plan,
    predict,
    prepare,
    train,
    verify,
)
from cce.cli.loading import typed_path
from cce.cli.plugin_verbs import add_plugin_verbs
from cce.plugins import SOURCES, load_installed, load_named
from cce.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main", "run_verb"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; 0 if it went well, 2 with one clear line if not (bad input, a diverged run), 130 if interrupted.

    141, without a line, if who read the output has gone, as `head` does.
    """
    verb = "cce"
    try:
        options = _parse(_Parser, arguments)
        verb = f"cce {options.verb}"
        options.run(options)
        print(end="", flush=True)  # what cannot be written is noticed here, and not when Python ends
    except (ValueError, TypeError, OSError, FloatingPointError, MemoryError) as error:
        if isinstance(error, BrokenPipeError) and _has_lost_reader():
            _drop_output()
            return 141
        print(f"{verb}: {error}", file=sys.stderr)
        _drop_output()
        return 2
    except KeyboardInterrupt as error:
        print(f"{verb}: {str(error) or 'interrupted'}", file=sys.stderr)
        return 130
    return 0


def _has_lost_reader() -> bool:
    """Whether standard output is a pipe that nobody reads any more."""
    if not hasattr(select, "poll"):  # Windows
        return False
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _drop_output() -> None:
    """Forget what cannot be written, or Python would try again when it ends."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parse(kind: type[argparse.ArgumentParser], arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of a verb, and all plug-ins loaded; those that it needs to be parsed are loaded before."""
    first = _Parser(prog="cce", add_help=False, allow_abbrev=False)
    _add_plugin(first)
    named, words = first.parse_known_args(arguments)
    plugins = load_named(named.plugin)
    typed = words[0] if words and not words[0].startswith("-") else None
    failures = load_installed(SOURCES) if typed == "prepare" else []
    options = _parser(kind, typed).parse_args(words, argparse.Namespace(plugins=plugins))
    for line in dict.fromkeys([*failures, *load_installed()]):
        print(f"cce: {line}", file=sys.stderr)
    return options


def _add_plugin(parser: argparse.ArgumentParser) -> None:
    about = "Python file or module that registers methods, models, metrics or sources; goes with every verb, repeatable"
    parser.add_argument("--plugin", metavar="FILE", action="append", default=[], help=about)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the list of all options, which `--help` shows."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.register("type", Path, typed_path)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see `{self.prog} --help`.\n")


class _RaisingParser(_Parser):
    """Raises what is wrong."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see `{self.prog} --help`.")


def run_verb(arguments: Sequence[str]) -> None:
    """Run one verb as the shell does; what is wrong is raised instead of printed."""
    options = _parse(_RaisingParser, arguments)
    options.run(options)


def _parser(kind: type[argparse.ArgumentParser], typed: str | None) -> argparse.ArgumentParser:
    parser = kind(prog="cce", description="Embedding tables 10 to 10,000 times smaller while they train.")
    parser.add_argument("--version", action="version", version=f"cce {__version__}")
    _add_plugin(parser)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in (
        prepare,
        plan,
        train,
        finalize,
        evaluate,
        predict,
        embed,
        pack,
        export,
        inspect,
        verify,
        list_names,
        demo,
    ):
        verb.add_verb(verbs)
    add_plugin_verbs(verbs, typed)
    return parser
