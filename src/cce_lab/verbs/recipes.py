"""`cce recipes`: the recipes that come with the package."""

import argparse
import tomllib

HELP = "show the recipes that come with the package, for `cce sweep`"
DESCRIPTION = "List the recipes that `cce sweep` takes by name, one per line, with what they are about."
EXAMPLE = "example:\n  cce recipes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser  # it has none


def run(options: argparse.Namespace) -> None:
    del options
    from cce_lab.sweeps.recipe import list_recipes

    paths = list_recipes()
    found = {name: tomllib.loads(path.read_text("utf-8")).get("about", "") for name, path in paths.items()}
    width = max(map(len, found))
    for name, about in found.items():
        print(f"{name:{width}}  {about}".rstrip())
