"""`cce cite`: BibTeX of the papers that methods come from. All entries are in `methods.bib`. No torch."""

import argparse
import re
from collections.abc import Iterable
from importlib.resources import files

HELP = "print BibTeX of the papers that methods come from"
DESCRIPTION = "Print a BibTeX entry for each paper that the methods come from, each paper once."
EXAMPLE = """examples:
  cce cite cce robe > methods.bib"""

ENTRY = re.compile(r"^@\w+\{.*?^\}", re.DOTALL | re.MULTILINE)
METHODS = re.compile(r",\n\s*methods\s*=\s*\{([^}]*)\}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("methods", nargs="*", metavar="METHOD", default=["cce"], help="methods to cite (default: cce)")


def run(options: argparse.Namespace) -> None:
    print("\n\n".join(cite(options.methods)))


def read_citations() -> dict[str, list[str]]:
    """The entries of each method, as BibTeX."""
    found: dict[str, list[str]] = {}
    for entry in ENTRY.findall((files("cce_lab") / "methods.bib").read_text("utf-8")):
        (methods,) = METHODS.findall(entry)
        for method in methods.split(", "):
            found.setdefault(method, []).append(METHODS.sub("", entry))
    return found


def cite(methods: Iterable[str]) -> list[str]:
    """The entries of these methods, each once."""
    known = read_citations()
    entries: dict[str, None] = {}
    for method in methods:
        if method not in known:
            raise ValueError(f"method must be one of {', '.join(sorted(known))}; got {method!r}.")
        entries |= dict.fromkeys(known[method])
    return list(entries)
