"""Verbs of installed packages: entry points of the group `clustered_embeddings.verbs`, a name and a module each.

The module has `HELP`, one line; `add_arguments(parser)`; and `run(options)`. It is imported if its verb was typed, or
if the help of `cce` shows all of them: it should import what is large inside of `run`.
"""

from __future__ import annotations

import argparse
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from cce.plugins import reason_of

GROUP = "clustered_embeddings.verbs"


def add_plugin_verbs(verbs: Any, typed: str | None) -> None:
    """Add the verbs of installed packages. `typed`: the verb that is to run; None shows the help of all."""
    for entry in entry_points(group=GROUP):
        if entry.name in verbs.choices:
            continue  # ours, or that of a package before
        if typed == entry.name:
            _add(verbs, entry)
        else:
            verbs.add_parser(entry.name, **({} if typed else {"help": _help(entry).replace("%", "%%")}))


def _add(verbs: Any, entry: EntryPoint) -> None:
    try:
        verb = entry.load()
        parser = verbs.add_parser(entry.name, formatter_class=argparse.RawDescriptionHelpFormatter)
        verb.add_arguments(parser)
        parser.set_defaults(run=verb.run)
    except Exception as error:
        raise ValueError(f"the verb {entry.name!r} must load from {entry.value!r}: {reason_of(error)}.") from error


def _help(entry: EntryPoint) -> str:
    """Its line of help, or why it has none: what one package broke must not hide the others."""
    try:
        return str(entry.load().HELP)
    except Exception as error:  # noqa: BLE001
        return f"(cannot be loaded: {reason_of(error)})"
