"""`cce recipes`: names and what they are about."""

from cce.cli import main


def test_a_line_for_each_recipe_with_what_it_is_about(capsys):
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 30
    assert all(len(line.split(maxsplit=1)) == 2 for line in lines)
    assert any(line.startswith("studies/columns ") for line in lines)
