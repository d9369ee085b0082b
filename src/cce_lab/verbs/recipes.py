"""`cce recipes`: the recipes that come with the package."""

from __future__ import annotations

import argparse
import json
import tomllib

HELP = "show the recipes that come with the package, for `cce sweep`"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.description = "Show the names that `cce sweep` takes, a line each, with what they are about."
    parser.add_argument("--json", action="store_true", help="print names and descriptions as a JSON object")


def run(options: argparse.Namespace) -> None:
    """Print the names."""
    from cce_lab.sweeps import list_recipes

    paths = list_recipes()
    found = {name: tomllib.loads(path.read_text("utf-8")).get("about", "") for name, path in paths.items()}
    if options.json:
        print(json.dumps(found))
        return
    width = max(map(len, found))
    for name, about in found.items():
        print(f"{name:{width}}  {about}".rstrip())
