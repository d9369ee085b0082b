"""`cce demo` as it is typed: what it prints, what it writes, and what it rejects."""

import json
import signal
import sys

import pytest

from cce.cli import main
from cce.records import read_records

pytestmark = pytest.mark.slow

SMALL = ("demo", "--rows", "2000")


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """A run with a table, and the same one with JSON: (exit, stdout, stderr, folder) of each."""
    runs = {}
    for kind, options in (("table", ()), ("json", ("--json",))):
        folder = tmp_path_factory.mktemp(kind) / "deep" / "demo"
        with pytest.MonkeyPatch.context() as patch:
            out, err = Recorder(), Recorder()
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = main([*SMALL, "--out", str(folder), *options])
        runs[kind] = (code, out.text, err.text, folder)
    return runs


class Recorder:
    """A stream that says it is a terminal, and remembers."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def isatty(self):
        return True


def test_it_prints_a_table_and_what_to_type_for_a_page(printed):
    code, out, err, folder = printed["table"]
    lines = out.splitlines()
    assert code == 0
    assert " ".join(lines[0].split()) == "table bytes fewer test BCE test AUC seconds"
    assert [line.split()[0] for line in lines[2:8]] == ["full", "cce,", "cce,", "cce,", "hash", "(oracle)"]
    assert lines[8:] == [f"for a page with charts: cce report {folder / 'records.jsonl'}"]
    for bar in ("full:", "hash:", "cce:", "validation BCE"):
        assert bar in err  # progress


def test_json_is_all_that_stdout_holds(printed):
    code, out, err, folder = printed["json"]
    data = json.loads(out)
    assert code == 0
    assert err == ""  # and no progress
    assert set(data) == {"oracle_bce", "runs"}
    assert [run["method"] for run in data["runs"]] == ["full", "cce", "cce", "cce", "hash"]
    assert data["runs"][1]["config"]["data"] == str(folder / "clicks")
    assert data["runs"][1]["config"]["epochs"] == 4
    assert [run["scores"] for run in data["runs"]] == [r.scores for r in read_records(folder / "records.jsonl")]


def test_both_ways_to_print_leave_the_same_files(printed):
    for _, _, _, folder in printed.values():
        assert {path.name for path in folder.iterdir()} == {"records.jsonl", "clicks", "full", "hash", "cce"}
    curves = [[record.curve for record in read_records(p[3] / "records.jsonl")] for p in printed.values()]
    assert curves[0] == curves[1]


def test_a_folder_that_cannot_be_made_is_one_line_and_exit_2(capsys, tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert main(["demo", "--rows", "128", "--out", str(tmp_path / "file" / "x")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("cce demo: ")
    assert str(tmp_path / "file") in err
    assert len(err.splitlines()) == 1


def test_an_interruption_is_one_line_and_exit_130_and_leaves_no_report(capsys, tmp_path):
    """Half a second into a run of a minute, as Ctrl-C would."""
    import cce.demo  # noqa: F401  # loaded before the clock starts

    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        code = main(["demo", "--json", "--out", str(tmp_path / "x")])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert code == 130
    assert capsys.readouterr() == ("", "cce demo: interrupted\n")
    assert not list((tmp_path / "x").glob("re*"))  # neither report nor records
