"""Files of a report: all of them, whole, and the tables at least."""

import csv
import json

import pytest

from cce.records import write_records
from cce_lab.report import vega, watch
from cce_lab.report.page import progress_text
from cce_lab.report.reading import Collected
from cce_lab.report.writing import write_report
from helpers.files import small_files
from helpers.made_records import made_record, made_records

needs_vega = pytest.mark.skipif(not vega.can_draw(), reason="vl-convert is not installed")
FOUND = Collected(records=made_records(("cce", "hash"), (500, 8000)))
TABLES = {
    f"{name}.{kind}"
    for kind in ("csv", "md")
    for name in (
        "environment",
        "overview",
        *(f"clicks-dlrm-10-epochs-{n}" for n in ("summary", "factors", "ledger")),
    )
}
PLOTS = (
    *("bce-training", "auc-training"),
    "factors",
    "churn",
    "h1",
    "h2",
    *(f"{name}-{of}" for name in ("bce", "auc") for of in ("params", "bytes", "curves")),
)


def names(folder):
    return {path.name for path in folder.iterdir()}


@pytest.mark.slow
@needs_vega
def test_page_figures_and_tables(tmp_path):
    report = write_report(FOUND, tmp_path / "deep" / "out")
    sections, paths = report.sections, report.files
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


def test_a_full_disk_is_told_by_name_and_leaves_the_old_report(tmp_path):
    with small_files(500), pytest.raises(OSError, match=rf"File too large: '{tmp_path}/new/.*'$"):
        write_report(FOUND, tmp_path / "new", figures=False)
    assert list(tmp_path.iterdir()) == []


@needs_vega
def test_without_figures(tmp_path):
    write_report(FOUND, tmp_path, figures=False)
    assert names(tmp_path) == {"index.html", "tables"}


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
    assert [float(row["BCE"]) for row in rows] == [row["BCE"] for row in section.summary.as_dicts()]


CONFIG = 'data = "data/clicks"\nmodel = "dlrm"\nmethod = "hash"\ncap = 500\nepochs = 10\n'


def reload_of(out):
    page = (out / "index.html").read_text()
    return json.loads(page.split('id="data">')[1].split("</script>")[0])["reload"]


def begin(folder):
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(CONFIG)
    (folder / "metrics.jsonl").write_text('{"kind": "validation", "step": 10, "bce": 0.5, "auc": 0.7}\n')


@pytest.mark.slow
@needs_vega
def test_it_follows_a_run_to_its_end(tmp_path):
    run, out, reported, pages = tmp_path / "sweep" / "run", tmp_path / "out", [], []
    (tmp_path / "sweep").mkdir()

    def later(seconds):
        assert seconds == 3
        pages.append(reload_of(out) if (out / "index.html").exists() else "none")
        if len(pages) == 1:
            begin(run)
        elif len(pages) == 3:
            with (run / "metrics.jsonl").open("a") as file:
                file.write('{"kind": "validation", "step": 20, "bce": 0.4, "auc": 0.8}\n')
        elif len(pages) == 4:
            write_records([made_record("hash", 500)], run / "record.jsonl")

    report = watch(
        [tmp_path / "sweep"], out, seconds=3, report=lambda found: reported.append(progress_text(found)), sleep=later
    )
    assert pages == ["none", 3, 3, 3]
    assert reported == ["0 of 1 runs finished, 1 under way"] * 2  # nothing is written while nothing changes
    assert (len(report.found.records), len(report.sections)) == (1, 1)
    assert reload_of(out) is None
    assert any(path.suffix == ".png" for path in report.files)


@pytest.mark.slow
@needs_vega
def test_ctrl_c_leaves_a_page_that_rests(tmp_path):
    begin(tmp_path / "sweep" / "run")

    def interrupt(seconds):
        assert reload_of(tmp_path / "out") == seconds
        raise KeyboardInterrupt

    found = watch([tmp_path / "sweep"], tmp_path / "out", seconds=5, sleep=interrupt).found
    assert len(found.live) == 1
    assert reload_of(tmp_path / "out") is None


@pytest.mark.slow
@needs_vega
def test_a_recipe_that_asks_for_more_is_waited_for_but_not_for_ever(tmp_path):
    sweep, slept = tmp_path / "sweep", []
    write_records([made_record("hash", 500)], sweep / "records.jsonl")
    (sweep / "recipe.toml").write_text('[sweep]\nmethods = ["hash"]\ncaps = [400, 500]\n')
    watch([sweep], tmp_path / "out", seconds=50, sleep=slept.append)
    assert 3 <= len(slept) <= 5  # more than PATIENCE


@pytest.mark.slow
@needs_vega
def test_finished_runs_are_not_waited_for(tmp_path):
    write_records([made_record("hash", 500)], tmp_path / "sweep" / "records.jsonl")
    watch([tmp_path / "sweep"], tmp_path / "out", seconds=1, sleep=pytest.fail)
    assert reload_of(tmp_path / "out") is None
