"""Files of a report: all of them, whole, and the tables at least."""

import csv

import pytest

from cce.report import vega
from cce.report.reading import Collected
from cce.report.writing import write_report
from helpers.made_records import made_records

needs_vega = pytest.mark.skipif(not vega.can_draw(), reason="vl-convert is not installed")
FOUND = Collected(records=made_records(("cce", "hash"), (500, 8000)))
TABLES = {
    f"{name}.{kind}"
    for kind in ("csv", "md")
    for name in ("environment", *(f"clicks-dlrm-10-epochs-{n}" for n in ("summary", "factors", "ledger")))
}
PLOTS = ("factors", "bce-params", "bce-bytes", "auc-params", "auc-bytes", "curves", "churn", "h1", "h2")


def names(folder):
    return {path.name for path in folder.iterdir()}


@pytest.mark.slow
@needs_vega
def test_page_figures_and_tables(tmp_path):
    sections, paths = write_report(FOUND, tmp_path / "deep" / "out")
    out = tmp_path / "deep" / "out"
    assert names(out) == {"index.html", "figures", "tables"}
    assert names(out / "tables") == TABLES
    assert names(out / "figures") == {
        f"clicks-dlrm-10-epochs-{plot}.{kind}" for plot in PLOTS for kind in ("svg", "png")
    }
    assert paths[0] == out / "index.html"
    assert len(paths) == len(set(paths)) == 1 + len(TABLES) + 2 * len(PLOTS)
    assert all(path.exists() for path in paths)
    assert len(sections) == 1


@needs_vega
def test_without_figures(tmp_path):
    write_report(FOUND, tmp_path, figures=False)
    assert names(tmp_path) == {"index.html", "tables"}


def test_without_vega_there_are_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(vega, "find_spec", lambda name: None)
    _, paths = write_report(FOUND, tmp_path)
    assert names(tmp_path) == {"tables"}
    assert {path.name for path in paths} == TABLES


def test_a_table_on_disk_is_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(vega, "find_spec", lambda name: None)
    (section,), _ = write_report(FOUND, tmp_path)
    with (tmp_path / "tables" / "clicks-dlrm-10-epochs-summary.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["series"] for row in rows] == ["full", "cce", "cce", "hash", "hash"]
    assert [float(row["BCE"]) for row in rows] == [row["BCE"] for row in section.summary.as_dicts()]
