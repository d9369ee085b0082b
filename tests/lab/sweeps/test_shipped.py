"""Recipes by name: those of the checkout, a path before a name, and what is not there."""

from pathlib import Path

import pytest

from cce_lab.sweeps.recipe import find_recipe, list_recipes, read_recipe

ROOT = Path(__file__).parents[3]


def test_every_recipe_has_a_name_and_can_be_read():
    found = list_recipes()
    assert set(found.values()) == set((ROOT / "recipes").rglob("*.toml"))
    assert read_recipe(find_recipe("studies/columns")).name == "columns"


def test_a_file_comes_before_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quick").write_text("")
    assert find_recipe("quick") == Path("quick")


@pytest.mark.parametrize(("name", "hint"), [("qick", "did you mean 'quick'"), ("zzz.toml", "`cce recipes` shows")])
def test_what_is_not_there(name, hint):
    with pytest.raises(FileNotFoundError, match=f"recipe must name a file that is there, .*got {name!r}: {hint}"):
        find_recipe(name)
