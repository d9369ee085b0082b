"""`cce cite`: BibTeX of the papers that methods come from."""

from __future__ import annotations

import argparse
import json

HELP = "print BibTeX of the papers that methods come from"
EXAMPLE = """examples:
  cce cite cce robe > methods.bib
  cce cite --all"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.description = "Print a BibTeX entry for each paper that these methods come from; a shared paper once."
    parser.epilog = EXAMPLE
    parser.add_argument("methods", nargs="*", metavar="METHOD", default=["cce"], help="methods (default: cce)")
    parser.add_argument("--all", action="store_true", help="all methods of this library")
    parser.add_argument("--json", action="store_true", help="print a JSON object: method → entries")


def run(options: argparse.Namespace) -> None:
    """Print the entries."""
    from cce_lab.citations import cite, read_citations

    methods = sorted(read_citations()) if options.all else options.methods
    if options.json:
        print(json.dumps({method: cite([method]) for method in methods}))
    else:
        print("\n\n".join(cite(methods)))
