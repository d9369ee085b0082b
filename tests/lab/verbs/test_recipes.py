"""`cce recipes`: names and what they are about, as text and as JSON."""

import json

from cce.cli import main


def test_a_line_for_each_recipe_with_what_it_is_about(capsys):
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["recipes", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found) == len(lines) >= 30
    assert all(found.values())
    assert any(line.startswith("studies/columns ") for line in lines)
