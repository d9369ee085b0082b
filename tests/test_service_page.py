"""The tutorial from clicks to a service: its commands run one after the other, and print what the page shows."""

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch

from cce.cli import main
from cce_lab.report.vega import can_draw

PAGE = Path(__file__).resolve().parents[1] / "docs" / "service.md"
FENCE = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps():
    """Each block of code, and each command with what it prints."""
    for kind, text in FENCE.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "python":
            yield kind, text
        else:
            yield from (tuple(each.split("\n", 1)) for each in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:])


def shape(text):
    """A text without its numbers and units, which differ between machines; rules and spaces follow from numbers."""
    return re.sub(r"(-{2,}|\d[\d,.]*( [kM]?B\b)?|\s+)+", " ", text).strip()


def cat(file, shown):
    """A file that is not there is written by the reader."""
    if Path(file).exists():
        assert shape(Path(file).read_text(encoding="utf-8")) == shape(shown)
    else:
        Path(file).write_text(shown, encoding="utf-8")


@pytest.mark.slow
@pytest.mark.skipif(not can_draw(), reason="without vl-convert there is no page")
def test_every_command_of_the_tutorial_prints_what_the_page_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before, seen = torch.get_num_threads(), []
    for command, shown in steps():
        verb, *words = shlex.split(command)
        seen.append(verb)
        if verb == "python" and not words:
            exec(compile(shown, str(PAGE), "exec"), {})
        elif verb == "cce":
            tried = "safetensors" if words[0] == "export" else "onnx"  # ONNX has tests of its own, in real processes
            assert main([word.replace("onnx", tried) for word in words]) == 0
            assert shape(capsys.readouterr().out) == shape(shown.replace("onnx:", f"{tried}:"))
        elif verb == "cat":
            cat(*words, shown)
        elif verb in ("mkdir", "mv", "cd"):
            {"mkdir": os.mkdir, "mv": shutil.move, "cd": os.chdir}[verb](*words)
    torch.set_num_threads(before)
    assert seen.count("cce") == 6
    assert {"pip", "python"} <= set(seen)
    compile(Path("serve.py").read_text(encoding="utf-8"), "serve.py", "exec")
