"""Every method has a paper, and the entries are BibTeX that other programs read."""

import re
from pathlib import Path

import pytest

from cce.embeddings import METHODS
from cce_lab.verbs.cite import cite, read_citations

PAGES = Path(__file__).resolve().parents[2] / "docs" / "methods"


def test_every_method_has_an_entry_and_no_entry_names_another():
    assert set(read_citations()) == set(METHODS)


def test_entries_are_whole():
    entries = [entry for found in read_citations().values() for entry in found]
    for entry in entries:
        assert re.fullmatch(r"@(inproceedings|article)\{[a-z]+[12]\d{3}[a-z]+,\n.*\n\}", entry, re.DOTALL), entry
        assert entry.count("{") == entry.count("}")
        assert {"title", "author", "year"} <= set(re.findall(r"^  (\w+) +=", entry, re.MULTILINE))
        assert "methods " not in entry
    keys = [re.match(r"@\w+\{(\w+),", entry)[1] for entry in dict.fromkeys(entries)]
    assert len(keys) == len(set(keys)) == 16


def test_the_first_author_of_an_entry_stands_in_the_method_page():
    for method, entries in read_citations().items():
        if method == "full":
            continue  # torch's own table
        page = (PAGES / f"{method}.md").read_text("utf-8").replace("é", "{\\'e}")
        for entry in entries:
            assert re.search(r"author += \{(.+?),", entry)[1] in page, (method, entry)


def test_a_shared_paper_is_printed_once_and_an_unknown_method_is_rejected():
    assert len(cite(["ce-sum", "ce-mult", "robe"])) == 2
    assert cite(["cce"])[0].startswith("@inproceedings{tsang2023clustering,")
    with pytest.raises(ValueError, match=r"method must be one of cce, cce-paper, .*; got 'word2vec'"):
        cite(["word2vec"])
