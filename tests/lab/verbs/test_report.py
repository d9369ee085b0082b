"""`cce report` as it is typed: what it prints, what it writes, and what it rejects."""

import json
import subprocess
import sys

import pytest

from cce.cli import main
from cce.records import write_records
from cce.text import install_hint
from cce_lab.report import vega
from helpers.made_records import made_records

needs_vega = pytest.mark.skipif(not vega.can_draw(), reason="vl-convert is not installed")


@pytest.fixture
def sweep(tmp_path):
    write_records(made_records(("cce", "hash"), (500, 8000)), tmp_path / "sweep" / "records.jsonl")
    return tmp_path / "sweep"


@pytest.mark.slow
@needs_vega
def test_it_prints_the_headline_and_where_the_page_is(sweep, capsys):
    assert main(["report", str(sweep)]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "clicks, dlrm, 10 epochs"
    assert lines[1].startswith("  No method reaches the full table's BCE 0.4519 within the sizes tried.")
    assert lines[-1] == f"page: {sweep}/report/index.html"
    assert (sweep / "report" / "index.html").exists()
    assert not (sweep / "report" / "figures").exists()
    assert err == ""


@pytest.mark.slow
@needs_vega
def test_json_is_all_that_stdout_holds(sweep, tmp_path, capsys):
    assert main(["report", str(sweep), "--json", "--out", str(tmp_path / "out")]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert told["runs"] == 15
    assert told["out"] == str(tmp_path / "out")
    assert told["files"][0] == str(tmp_path / "out" / "index.html")
    (group,) = told["groups"]
    assert (group["data"], group["epochs"], len(group["summary"])) == ("clicks", 10, 5)
    assert [row["series"] for row in group["factors"]] == ["hash", "cce"]
    assert err == ""


def test_for_latex_it_writes_tables_and_names_no_page(sweep, capsys, monkeypatch):
    monkeypatch.setattr(vega, "find_spec", lambda name: None)
    assert main(["report", str(sweep), "--format", "latex"]) == 0
    assert capsys.readouterr().out.splitlines()[-2] == f"15 runs; 6 files in {sweep}/report"
    assert len(list((sweep / "report" / "tables").glob("*.tex"))) == 3


def test_without_vega_there_are_tables_and_a_hint(sweep, capsys, monkeypatch):
    monkeypatch.setattr(vega, "find_spec", lambda name: None)
    assert main(["report", str(sweep)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("no page and no charts, tables only: ")
    assert install_hint("report") in last
    assert [path.name for path in (sweep / "report").iterdir()] == ["tables"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["empty"], "there are no finished runs in empty."),
        (["nowhere"], "nowhere is not there: give files of records, or folders of runs."),
        (["bad.jsonl"], "line 1 of bad.jsonl must be the record of a run: "),
        (["picture.jsonl"], "picture.jsonl must be text in UTF-8, and it is not: invalid start byte at 0."),
    ],
)
def test_what_is_wrong_is_one_clear_line(words, error, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.jsonl").write_text("no\n")
    (tmp_path / "picture.jsonl").write_bytes(b"\x89PNG")
    assert main(["report", *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"cce report: {error}")
    assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.jsonl", "empty", "picture.jsonl"]


@pytest.mark.slow
def test_it_does_without_torch(sweep):
    code = f"import sys, cce.cli\ncce.cli.main(['report', {str(sweep)!r}])\n"
    code += "sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
