"""`cce list`: the methods, models, metrics and sources that there are, those of plug-ins among them."""

import argparse
import inspect
import json
from typing import Any

HELP = "list methods, models, metrics or sources"
DESCRIPTION = "List the names that other verbs take, one per line, with those of plug-ins."
EXAMPLE = """examples:
  cce list methods
  cce list metrics --json
  cce list methods --plugin ours.py"""


WHAT = ("methods", "models", "metrics", "sources")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=WHAT, metavar="|".join(WHAT), help="what to list")


def run(options: argparse.Namespace) -> None:
    from cce.data import SOURCES
    from cce.embeddings import METHODS
    from cce.evaluation import METRICS
    from cce.models import MODELS

    kinds: dict[str, Any] = dict(zip(WHAT, (METHODS, MODELS, METRICS, SOURCES), strict=True))
    found = {  # the first line of what each says about itself, without marks of code
        name: getattr(each, "about", None) or (inspect.getdoc(each) or "").partition("\n")[0].replace("`", "")
        for name, each in kinds[options.what].items()
    }
    if options.json:
        print(json.dumps(found))
        return
    width = max(len(name) for name in found)
    for name, about in found.items():
        print(f"{name:{width}}  {about}".rstrip())
