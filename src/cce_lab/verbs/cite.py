"""`cce cite`: BibTeX of the papers that methods come from."""

from __future__ import annotations

import argparse

HELP = "print BibTeX of the papers that methods come from"
EXAMPLE = """examples:
  cce cite cce robe > methods.bib"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.description = "Print a BibTeX entry for each paper that these methods come from; a shared paper once."
    parser.epilog = EXAMPLE
    parser.add_argument("methods", nargs="*", metavar="METHOD", default=["cce"], help="methods (default: cce)")


def run(options: argparse.Namespace) -> None:
    """Print the entries."""
    from cce_lab.citations import cite

    print("\n\n".join(cite(options.methods)))
