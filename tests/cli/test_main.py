"""`cce` as a command: its verbs, its version, its help, and what it says to a wrong word."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cce
from cce.cli import _Parser, _parser, main


def exits(arguments, capsys):
    """The exit code of arguments that never reach a verb, and what was printed."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    return caught.value.code, *capsys.readouterr()


def test_version_is_that_of_the_package(capsys):
    assert exits(["--version"], capsys) == (0, f"cce {cce.__version__}\n", "")


def test_help_names_every_verb(capsys):
    code, out, err = exits(["--help"], capsys)
    assert (code, err) == (0, "")
    assert out.startswith("usage: cce [-h] [--version] [--plugin FILE] VERB ...")
    assert "Small embedding tables for PyTorch: 8-bit rows in training" in out
    assert "demo" in out


@pytest.mark.parametrize("words", [["train", "data", "--out", ""], ["report", ""], ["prepare", "synthetic", ""]])
def test_an_empty_path_is_rejected(words, capsys):
    code, out, err = exits(words, capsys)
    assert (code, out) == (2, "")
    assert "must be a path, got ''" in err


def test_no_verb_is_rejected(capsys):
    code, out, err = exits([], capsys)
    assert (code, out) == (2, "")
    assert err == "cce: the following arguments are required: VERB; see `cce --help`.\n"


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_nobody_reads_or_no_disk_takes_is_no_traceback(unbuffered):
    words = [sys.executable, "-m", "cce", "list", "methods"]
    reading, writing = os.pipe()
    os.close(reading)
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    found = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, text=True, env=environment, timeout=60)
    os.close(writing)
    assert (found.returncode, found.stderr) == (141, "")
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            found = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, timeout=60)
        assert (found.returncode, found.stderr) == (2, "cce list: [Errno 28] No space left on device\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-m", "cce"],
        pytest.param(
            [str(Path(sys.executable).with_name("cce"))],
            marks=pytest.mark.skipif(
                shutil.which("cce", path=str(Path(sys.executable).parent)) is None, reason="the script is not installed"
            ),
        ),
    ],
    ids=["python -m cce", "cce"],
)
def test_the_shell_gets_the_exit_code(command):
    def run(*arguments):
        return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120)

    version, wrong = run("--version"), run("dmeo")
    assert (version.returncode, version.stdout, version.stderr) == (0, f"cce {cce.__version__}\n", "")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "invalid choice: 'dmeo'" in wrong.stderr


def test_there_are_about_150_options_and_each_has_a_sentence_and_each_verb_an_example():
    parser = _parser(_Parser, None)
    (verbs,) = (action for action in parser._actions if action.dest == "verb")
    names = [*verbs.choices]
    count, lacking = 0, []
    for name in names:
        verb = _parser(_Parser, name)._actions[-1].choices[name]
        options = [each for each in verb._actions if each.option_strings and each.dest not in ("help", "json")]
        count += len(options)
        lacking += [f"{name} {each.option_strings[0]}" for each in verb._actions if not each.help]
        lacking += [] if "example" in (verb.epilog or "") else [name]
    assert len(names) >= 19
    assert not lacking
    assert 100 < count <= 150, count
