"""What the verbs that take a recipe have in common; `test_sweep.py` and `test_tune.py` type them."""

from argparse import Namespace
from pathlib import Path

from cce.cli import _parser, recipe_options


def options(*words):
    return _parser().parse_args([*words], Namespace(plugins=[]))


def test_folders_are_named_after_the_recipe_unless_others_are_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text('[data]\nname = "clicks"\n[sweep]\nmethods = ["full"]\n')
    for verb in ("sweep", "tune"):
        setting = recipe_options.read_setting(options(verb, "mine.toml"))
        assert (setting.out, setting.data) == (Path("runs/sweeps/mine"), tmp_path / "runs" / "data" / "clicks")
        setting = recipe_options.read_setting(options(verb, "mine.toml", "--out", "here", "--data", "there"))
        assert (setting.out, setting.data) == (Path("here"), tmp_path / "there")
