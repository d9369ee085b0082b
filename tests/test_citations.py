"""Every method has a paper in `docs/methods/methods.bib`, and the entries are BibTeX that other programs read."""

import re
from pathlib import Path

from cce.embeddings import METHODS

PAGES = Path(__file__).resolve().parents[1] / "docs" / "methods"
ENTRIES = re.findall(r"^@\w+\{.*?^\}", (PAGES / "methods.bib").read_text("utf-8"), re.DOTALL | re.MULTILINE)


def fields(entry):
    return dict(re.findall(r"^  (\w+) += \{(.*)\},?$", entry, re.MULTILINE))


def test_every_method_has_an_entry_and_no_entry_names_another():
    assert {method for entry in ENTRIES for method in fields(entry)["methods"].split(", ")} == set(METHODS)


def test_entries_are_whole():
    assert len(ENTRIES) == len({entry.partition(",")[0] for entry in ENTRIES}) == 16
    for entry in ENTRIES:
        assert re.match(r"@(inproceedings|article)\{[a-z]+[12]\d{3}[a-z]+,\n", entry), entry
        assert entry.count("{") == entry.count("}")
        assert {"title", "author", "year"} <= set(fields(entry))


def test_the_first_author_of_an_entry_stands_in_the_method_page():
    for entry in ENTRIES:
        for method in set(fields(entry)["methods"].split(", ")) - {"full"}:  # torch's own table
            page = (PAGES / f"{method}.md").read_text("utf-8").replace("é", "{\\'e}")
            assert fields(entry)["author"].partition(",")[0] in page, (method, entry)
