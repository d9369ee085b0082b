"""`cce list`: the methods, models, metrics and sources that there are, those of plug-ins among them."""

from __future__ import annotations

import argparse
import inspect
import json
from collections.abc import Callable

HELP = "show the methods, models, metrics or sources that there are"
DESCRIPTION = "Show the names that other verbs take, a line each, with those that plug-ins registered."
EXAMPLE = """examples:
  cce list methods
  cce list metrics --json
  cce list methods --plugin ours.py"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("what", choices=tuple(KINDS), metavar="|".join(KINDS), help="what to list")


def run(options: argparse.Namespace) -> None:
    """Print the names."""
    found = KINDS[options.what]()
    if options.json:
        print(json.dumps(found))
        return
    width = max(len(name) for name in found)
    for name, about in found.items():
        print(f"{name:{width}}  {about}".rstrip())


def _methods() -> dict[str, str]:
    from cce.embeddings import METHODS

    return {name: _first_line(kind) for name, kind in METHODS.items()}


def _models() -> dict[str, str]:
    from cce.models import MODELS

    return {name: _first_line(make) for name, make in MODELS.items()}


def _metrics() -> dict[str, str]:
    from cce.evaluation import METRICS

    return {name: info.about for name, info in METRICS.items()}


def _sources() -> dict[str, str]:
    from cce.data import SOURCES

    return {name: source.about for name, source in SOURCES.items()}


def _first_line(thing: object) -> str:
    """The first sentence of what it says about itself, without marks of code."""
    return (inspect.getdoc(thing) or "").partition("\n")[0].replace("`", "")


KINDS: dict[str, Callable[[], dict[str, str]]] = {
    "methods": _methods,
    "models": _models,
    "metrics": _metrics,
    "sources": _sources,
}
