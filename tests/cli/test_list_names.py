"""`cce list`: names and what they are, as text and as JSON."""

import json

import pytest

import cce
from cce.cli import main


def test_a_line_for_each_name(capsys):
    assert main(["list", "methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == cce.embeddings.list_methods()
    assert all(len(line.split()) > 2 and "`" not in line for line in lines)


def test_without_a_kind_it_says_which_there_are(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["list"])
    kinds = "methods|models|metrics|sources"
    assert (
        capsys.readouterr().err == f"cce list: the following arguments are required: {kinds}; see `cce list --help`.\n"
    )


@pytest.mark.parametrize("what", ["models", "metrics", "sources"])
def test_every_name_has_a_description(what, capsys):
    assert main(["list", what, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found) >= 2
    assert all(found.values())
