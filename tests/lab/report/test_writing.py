"""Files of a report: all of them, whole, and the tables at least."""

import csv
import re

import pytest

from cce_lab.report import vega
from cce_lab.report.groups import Collected
from cce_lab.report.writing import write_report
from helpers.files import small_files
from helpers.made_records import made_records

needs_vega = pytest.mark.skipif(not vega.can_draw(), reason="vl-convert is not installed")
FOUND = Collected(records=made_records(("cce", "hash"), (500, 8000)))
TABLES = {f"{name}.csv" for name in ("environment", *(f"clicks-dlrm-10-epochs-{n}" for n in ("summary", "factors")))}
PLOTS = ("bce-curves", *(f"{name}-{of}" for name in ("bce", "auc") for of in ("training", "params", "bytes")))


def names(folder):
    return {path.name for path in folder.iterdir()}


@pytest.mark.slow
@needs_vega
def test_page_and_tables(tmp_path):
    report = write_report(FOUND, tmp_path / "deep" / "out")
    sections, paths = report.sections, report.files
    out = tmp_path / "deep" / "out"
    assert names(out) == {"index.html", "tables"}
    assert names(out / "tables") == TABLES
    assert paths[0] == out / "index.html"
    assert len(paths) == len(set(paths)) == 1 + len(TABLES)
    assert all(path.exists() for path in paths)
    assert len(sections) == 1


@needs_vega
def test_a_full_disk_is_told_by_name(tmp_path):
    with small_files(500), pytest.raises(OSError, match=rf"File too large: '{tmp_path}/new/.*'$"):
        write_report(FOUND, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_without_vega_there_are_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(vega, "find_spec", lambda name: None)
    paths = write_report(FOUND, tmp_path).files
    assert names(tmp_path) == {"tables"}
    assert {path.name for path in paths} == TABLES


def test_a_table_on_disk_is_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(vega, "find_spec", lambda name: None)
    (section,) = write_report(FOUND, tmp_path).sections
    with (tmp_path / "tables" / "clicks-dlrm-10-epochs-summary.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["series"] for row in rows] == ["full", "cce", "cce", "hash", "hash"]
    assert [float(row["BCE"]) for row in rows] == [row["BCE"] for row in section.tables["summary"].as_dicts()]


@pytest.mark.slow
@needs_vega
def test_for_papers_there_are_latex_tables_and_pdf_figures(tmp_path):
    report = write_report(FOUND, tmp_path, format="latex")
    assert names(tmp_path) == {"figures", "tables"}
    assert names(tmp_path / "tables") == TABLES | {name.replace(".csv", ".tex") for name in TABLES}
    assert names(tmp_path / "figures") == {f"clicks-dlrm-10-epochs-{plot}.pdf" for plot in PLOTS}
    assert all(path.read_bytes().startswith(b"%PDF") for path in report.files if path.suffix == ".pdf")
    text = (tmp_path / "tables" / "clicks-dlrm-10-epochs-summary.tex").read_text()
    shown = [str(cell) for cell in report.sections[0].tables["summary"].rows[1]]
    line = next(line for line in text.splitlines() if line.startswith("cce & cap 500 & "))
    assert line.count(" & ") == len(shown) - 1
    assert re.sub(r"[{}$\\]", "", line).startswith(" & ".join(shown[:3]).replace("–", "--"))
