"""A recipe, its data and its folder: where they are. `tests/lab/verbs` types the commands."""

from pathlib import Path

from cce_lab import Experiment


def test_folders_are_named_after_the_recipe_unless_others_are_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text('[data]\nname = "clicks"\n[sweep]\nmethods = ["full"]\n')
    experiment = Experiment("mine.toml")
    assert (experiment.out, experiment.data) == (Path("runs/sweeps/mine"), Path("runs/data/clicks"))
    experiment = Experiment("mine.toml", out="here", data="there")
    assert (experiment.out, experiment.data) == (Path("here"), Path("there"))


def test_another_recipe_gives_the_ground_and_the_results_say_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text('[sweep]\nmethods = ["full"]\n')
    Path("ground.toml").write_text('[data]\nname = "clicks"\n[train]\nlr = 0.5\n[sweep]\nmethods = ["full"]\n')
    (tmp_path / "runs" / "data" / "named").mkdir(parents=True)
    experiment = Experiment("study.toml", like="ground.toml", data="named")
    assert (experiment.recipe.train, experiment.out) == ({"lr": 0.5}, Path("runs/sweeps/study-ground"))
    assert experiment.data == Path("runs/data/named")
    assert experiment.text.startswith("# cce sweep --like ground.toml\n[sweep]\n")
