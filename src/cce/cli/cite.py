"""`cce cite`: BibTeX of the papers that methods come from."""

from __future__ import annotations

import argparse
import json
from typing import Any

EXAMPLE = """examples:
  cce cite cce robe > methods.bib
  cce cite --all"""


def add_verb(verbs: Any) -> None:
    """Add the verb to the parser."""
    parser = verbs.add_parser(
        "cite",
        help="print BibTeX of the papers that methods come from",
        description="Print a BibTeX entry for each paper that these methods come from; a shared paper once.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("methods", nargs="*", metavar="METHOD", default=["cce"], help="methods (default: cce)")
    parser.add_argument("--all", action="store_true", help="all methods of this library")
    parser.add_argument("--json", action="store_true", help="print a JSON object: method → entries")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Print the entries."""
    from cce.citations import cite, read_citations

    methods = sorted(read_citations()) if options.all else options.methods
    if options.json:
        print(json.dumps({method: cite([method]) for method in methods}))
    else:
        print("\n\n".join(cite(methods)))
