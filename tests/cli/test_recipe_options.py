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


def test_another_recipe_gives_the_ground_and_the_results_say_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text('[sweep]\nmethods = ["full"]\n')
    Path("ground.toml").write_text('[data]\nname = "clicks"\n[train]\nlr = 0.5\n[sweep]\nmethods = ["full"]\n')
    (tmp_path / "runs" / "data" / "named").mkdir(parents=True)
    typed = options("sweep", "study.toml", "--like", "ground.toml", "--data", "named")
    setting = recipe_options.read_setting(typed)
    assert (setting.recipe.train, setting.out) == ({"lr": 0.5}, Path("runs/sweeps/study-ground"))
    assert setting.data == tmp_path / "runs" / "data" / "named"
    assert recipe_options.recipe_text(typed).startswith("# cce sweep --like ground.toml\n[sweep]\n")
