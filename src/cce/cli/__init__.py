"""The command line: `cce VERB …`. Verbs import what they need when they run, so help appears at once.

A verb is a module with `HELP`, one line; `add_arguments(parser)`; `run(options)`; and, if it has them, `DESCRIPTION`
and `EXAMPLE`. Installed packages add verbs by entry points: such a module is imported if its verb was typed, or if the
help of `cce` shows all of them, so it should import what is large inside of `run`.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from cce.cli.loading import add_run, load, typed_path
from cce.plugins import SOURCES, load_installed, load_named, reason_of
from cce.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["add_run", "load", "main", "run_verb"]

VERBS: tuple[str, ...] = ("prepare", "plan", "train", "finalize", "evaluate", "predict", "embed", "pack", "export")
VERBS += ("inspect", "verify", "list", "demo")
MODULES = {"list": "list_names"}  # by verb, if they have another name: `list` is Python's own
VERBS_OF_PACKAGES = "clustered_embeddings.verbs"  # entry points, a name and a module each


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
        is_unread = isinstance(error, BrokenPipeError)
        if not is_unread:
            print(f"{verb}: {error}", file=sys.stderr)
        _drop_output()
        return 141 if is_unread else 2
    except KeyboardInterrupt as error:
        print(f"{verb}: {str(error) or 'interrupted'}", file=sys.stderr)
        return 130
    return 0


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
    about = "Python file or module that registers methods, models, metrics or sources; for any verb, repeatable"
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
    """The parser of all verbs. `typed`: the verb that is to run; None shows the help of all."""
    parser = kind(
        prog="cce",
        description="Small embedding tables for PyTorch: 8-bit rows in training, one to eight bytes per id in service.",
    )
    parser.add_argument("--version", action="version", version=f"cce {__version__}")
    _add_plugin(parser)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name in VERBS:
        _add_verb(verbs, name, import_module(f"cce.cli.{MODULES.get(name, name)}"))
        verbs.choices[name].add_argument("--json", action="store_true", help="print the result as JSON")
    for entry in entry_points(group=VERBS_OF_PACKAGES):
        if entry.name in verbs.choices:
            continue  # ours, or that of a package before
        if typed == entry.name:
            _add_installed(verbs, entry)
        else:
            about: dict[str, Any] = {} if typed else {"help": _help(entry).replace("%", "%%")}
            verbs.add_parser(entry.name, **about)
    return parser


def _add_verb(verbs: Any, name: str, verb: Any) -> None:
    parser = verbs.add_parser(
        name,
        help=verb.HELP.replace("%", "%%"),
        description=getattr(verb, "DESCRIPTION", None),
        epilog=getattr(verb, "EXAMPLE", None),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verb.add_arguments(parser)
    parser.set_defaults(run=verb.run)


def _add_installed(verbs: Any, entry: EntryPoint) -> None:
    try:
        _add_verb(verbs, entry.name, entry.load())
    except Exception as error:
        raise ValueError(f"the verb {entry.name!r} must load from {entry.value!r}: {reason_of(error)}.") from error


def _help(entry: EntryPoint) -> str:
    """Its line of help, or why it has none: what one package broke must not hide the others."""
    try:
        return str(entry.load().HELP)
    except Exception as error:  # noqa: BLE001
        return f"(cannot be loaded: {reason_of(error)})"
