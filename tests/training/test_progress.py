"""Lines where there is no terminal, a bar where there is one, nothing where nothing is wanted."""

import sys
import time

import pytest

from cce.training import progress as module
from cce.training.progress import Progress, Stopwatch, memory_text


class Terminal:
    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def isatty(self):
        return True


def test_lines_come_now_and_then(capsys, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.0)
    progress = Progress(1000, shown=True, first_row=100)
    progress.update(50, loss="0.5")
    progress.say("step 3: clustered")
    progress.close()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("150 of 1,000 rows, ")
    assert lines[0].endswith(" rows/s, loss 0.5")
    assert lines[1] == "step 3: clustered"


def test_a_terminal_has_a_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    progress = Progress(1000, shown=True, name="cce")
    progress.update(500, validation="0.4")
    progress._bar.refresh()
    assert "cce:" in terminal.text
    assert "validation 0.4" in terminal.text
    progress.close()


def test_nothing_is_shown_if_nothing_is_wanted(capsys, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.0)
    progress = Progress(10, shown=False)
    progress.update(5)
    progress.say("x")
    assert capsys.readouterr().err == ""


def test_memory_is_told():
    assert memory_text().endswith("B") or memory_text() == "unknown"


def test_seconds_add_up_by_part():
    watch = Stopwatch()
    for _ in range(2):
        with watch("a"):
            time.sleep(0.01)
    with pytest.raises(ValueError, match="x"), watch("b"):
        raise ValueError("x")
    assert watch.seconds["a"] >= 0.02
    assert set(watch.seconds) == {"a", "b"}
