"""Plug-ins: what they register is there afterwards, in this process and in those of a sweep; and what is rejected."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

import cce
from cce import plugins
from cce.cli import main
from cce.records import read_records
from helpers.runs import OPTIONS, tiny_data

PLUGIN = Path(__file__).parents[1] / "examples" / "ours.py"
RECIPE = """
plugins = ["ours.py"]

[train]
model = "small-dlrm"
embedding_dim = 8
epochs = 1
batch_size = 64
metrics = ["bce", "positives"]

[sweep]
methods = ["full", "renamed"]
caps = [320]
seeds = [0, 1]
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    elsewhere = [folder for folder in sys.path if Path(folder).name != "examples"]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *elsewhere])
    (tmp_path / "ours.py").write_text(PLUGIN.read_text())
    yield tmp_path / "ours.py"
    sys.modules.pop("ours", None)


def test_what_a_plugin_registers_is_listed_and_found(plugin, capsys):
    names = {"methods": "renamed", "models": "small-dlrm", "metrics": "positives", "sources": "ledger"}
    for what, name in names.items():
        assert main(["list", what, "--plugin", str(plugin), "--json"]) == 0
        assert name in json.loads(capsys.readouterr().out)
    assert type(cce.create_embedding("renamed", 100, 8, num_params=80)).__name__ == "Renamed"
    with pytest.raises(SystemExit):
        main(["prepare", "--plugin", str(plugin), "ledger", "--help"])
    assert "our ledger" in capsys.readouterr().out


def test_it_is_loaded_once_and_known_by_its_name(plugin):
    assert cce.plugins.load_plugins([plugin]) == cce.plugins.load_plugins([str(plugin)]) == [str(plugin)]
    other = plugin.parent / "other" / "ours.py"
    other.parent.mkdir()
    other.write_text("")
    with pytest.raises(ValueError, match=r"plugin must have a name of its own, got 'ours' from .*other"):
        cce.plugins.load_plugins([other])


@pytest.fixture
def installed(plugin, monkeypatch):
    """`installed(group, name, value)`: an entry point of a package that is installed for the time of the test."""
    folder = plugin.parent / "installed-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: installed\nVersion: 1.0\n")

    def announce(group, name, value):
        with (folder / "entry_points.txt").open("a") as file:
            file.write(f"[clustered_embeddings.{group}]\n{name} = {value}\n")
        importlib.invalidate_caches()

    return announce


@pytest.mark.parametrize("group", ["plugins", "sources"])
def test_entry_points_of_installed_packages_are_loaded(installed, group):
    installed(group, "anything", "ours")
    assert cce.plugins.load_plugins() == []
    assert "renamed" in cce.embeddings.list_methods()


def test_the_source_of_an_installed_package_is_a_kind_of_prepare(installed, capsys):
    installed("sources", "anything", "ours")
    with pytest.raises(SystemExit) as caught:
        main(["prepare", "ledger", "--help"])
    assert caught.value.code == 0
    assert "our ledger" in capsys.readouterr().out


def test_help_loads_no_plugin(installed, capsys):
    for group in ("plugins", "sources"):
        installed(group, "anything", "ours")
    for words in (["--help"], ["train", "--help"]):
        with pytest.raises(SystemExit):
            main(words)
    assert "ours" not in sys.modules


def test_a_broken_package_is_left_out_with_one_line(installed, capsys):
    installed("plugins", "lost", "no_such_module")
    assert main(["list", "methods"]) == 0
    out, err = capsys.readouterr()
    assert "hash-embedding" in out
    line = "plug-in 'lost' of 'no_such_module' is left out: ModuleNotFoundError: No module named 'no_such_module'"
    assert err == f"cce: {line}\n"
    with pytest.warns(UserWarning, match="plug-in 'lost' of 'no_such_module' is left out"):
        cce.plugins.load_plugins()


VERB = """
HELP = "count to N (100% exact)"

def add_arguments(parser):
    parser.description = "Count."
    parser.add_argument("most", type=int)

def run(options):
    if options.most < 1:
        raise ValueError(f"most must be positive, got {options.most}.")
    print(*range(1, options.most + 1))
"""


class TestVerbs:
    def test_the_verb_of_an_installed_package_runs_as_ours_do(self, installed, plugin, capsys):
        (plugin.parent / "counting.py").write_text(VERB)
        installed("verbs", "count", "counting")
        assert main(["count", "3"]) == 0
        assert capsys.readouterr().out == "1 2 3\n"
        assert main(["count", "0"]) == 2
        assert capsys.readouterr().err == "cce count: most must be positive, got 0.\n"
        with pytest.raises(SystemExit):
            main(["--help"])
        assert re.search(r"count +count to N \(100% exact\)", capsys.readouterr().out)
        del sys.modules["counting"]

    def test_other_verbs_do_not_load_it(self, installed, plugin, capsys):
        (plugin.parent / "counting.py").write_text(VERB)
        installed("verbs", "count", "counting")
        assert main(["list", "metrics"]) == 0
        with pytest.raises(SystemExit):
            main(["train", "--help"])
        with pytest.raises(SystemExit):
            main(["cuont"])
        assert "'count'" in capsys.readouterr().err
        assert "counting" not in sys.modules

    @pytest.mark.parametrize(("text", "reason"), [("1 / 0", "ZeroDivisionError: division by zero"), ("", "HELP")])
    def test_a_broken_one_hides_no_other(self, installed, plugin, capsys, text, reason):
        (plugin.parent / "broken_verb.py").write_text(text)
        installed("verbs", "broken", "broken_verb")
        with pytest.raises(SystemExit) as caught:
            main(["--help"])
        assert caught.value.code == 0
        out = " ".join(capsys.readouterr().out.split())
        assert "broken (cannot be loaded: " in out
        assert reason in out
        assert "BibTeX" in out
        assert main(["broken", "3"]) == 2
        assert capsys.readouterr().err.startswith("cce: the verb 'broken' must load from 'broken_verb': ")
        sys.modules.pop("broken_verb", None)

    def test_ours_cannot_be_replaced(self, installed, capsys):
        installed("verbs", "list", "no_such_module")
        assert main(["list", "methods"]) == 0


@pytest.mark.slow
def test_a_recipe_carries_its_plugins_to_the_processes_of_a_sweep_and_to_its_records(plugin, capsys):
    data = tiny_data(plugin.parent / "tiny")
    (plugin.parent / "recipe.toml").write_text(RECIPE)
    assert main(["sweep", "recipe.toml", "--data", str(data), "--out", "out", "--jobs", "2"]) == 0
    records = read_records(plugin.parent / "out" / "records.jsonl")
    assert sorted(record.series for record in records) == ["full", "full", "renamed", "renamed"]
    assert all(0 <= record.scores["positives"] <= 1 for record in records)
    assert all(record.config["plugins"] == [str(plugin)] for record in records)
    assert main(["report", "out"]) == 0
    page = (plugin.parent / "out" / "report" / "index.html").read_text()
    assert "renamed" in page


@pytest.mark.slow
def test_a_saved_run_does_not_run_its_plugin_until_it_is_named_again(plugin, capsys, monkeypatch):
    data = tiny_data(plugin.parent / "tiny")
    options = [word for name in ("cap", "embedding_dim", "batch_size") for word in _option(name)]
    words = ["--method", "renamed", "--model", "small-dlrm", "--epochs", "1", "--max-steps", "5", *options]
    assert main(["train", str(data), *words, "--out", "run", "--plugin", "ours.py"]) == 0
    saved = dict(plugins._loaded)
    plugins._loaded.clear()
    for verb in (["evaluate", "run", str(data)], ["train", "--resume", "run", "--epochs", "2"]):
        capsys.readouterr()
        assert main(verb) == 2
        assert "plugins must be loaded first, got " in capsys.readouterr().err
    plugins._loaded.update(saved)
    moved = plugin.parent / "moved" / "ours.py"
    moved.parent.mkdir()
    plugin.rename(moved)
    plugins._loaded["ours"] = str(moved)
    assert main(["evaluate", "run", str(data), "--plugin", "moved/ours.py"]) == 0


def _option(name):
    return [f"--{name.replace('_', '-')}", str(OPTIONS[name])]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list", "methods", "--plugin", "none.py"], r"plugin must name a file that is there, got '.*none.py'"),
        (["list", "methods", "--plugin", "no_such_module"], "plugin must be a Python file or a module, got 'no_such_"),
        (["list", "methods", "--plugin", "broken.py"], r"can be run, got '.*broken.py': SyntaxError in line 2"),
        (["list", "methods", "--plugin", "exits.py"], r"can be run, got '.*exits.py': SystemExit: 3\.$"),
        (["list", "methods", "--plugin", "exits"], r"a Python file or a module, got 'exits': SystemExit: 3\.$"),
        (["list", "methods", "--plugin", "json.py"], "plugin must have a name of its own, got .* module 'json'"),
    ],
)
def test_bad_plugins_are_one_line(plugin, capsys, words, message):
    (plugin.parent / "broken.py").write_text("\ndef")
    (plugin.parent / "json.py").write_text("")
    (plugin.parent / "exits.py").write_text("import sys\nsys.exit(3)")
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert re.search(message, err), err


class TestRegister:
    def test_a_method_must_be_a_table_with_a_new_name(self):
        class Nameless(cce.embeddings.HashingTrickEmbedding):
            method = ""

        with pytest.raises(TypeError, match=r"a method must be a subclass of cce\.embeddings\.Embedding, got 3"):
            cce.embeddings.register_method(3)
        with pytest.raises(ValueError, match="method of Nameless must be a word"):
            cce.embeddings.register_method(Nameless)
        with pytest.raises(ValueError, match="must be new, got 'hash', which is HashingTrickEmbedding"):
            cce.embeddings.register_method(cce.embeddings.HashingTrickEmbedding)

    def test_a_model_must_be_callable_with_a_new_name(self):
        with pytest.raises(ValueError, match="must be new, got 'dlrm'"):
            cce.models.register_model("dlrm", cce.models.DLRM)
        with pytest.raises(ValueError, match="word without a colon, got 'a:b'"):
            cce.models.register_model("a:b", cce.models.DLRM)
        with pytest.raises(TypeError, match="make must be a class or function"):
            cce.models.register_model("new", 3)
