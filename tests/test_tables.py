"""Scores on pages are those of the records: every table of results, and every figure of the sections named here."""

import importlib.util
import json
import re
import statistics
from pathlib import Path

import pytest
from benchmarks import codings, stream

from cce.records import read_records

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)]
BENCH = ROOT / "results" / "bench"

SETS = {"MovieLens": "", "Anime": "-anime", "Book-Crossing": "-bookcrossing"}
TABLE = re.compile(r"^\| (.*) \|\n\|[:|-]+\|\n((?:\|.*\|\n)+)", re.MULTILINE)


def studies():
    """Each section on a study: its text, and its tables as lists of rows of cells."""
    for part in re.split(r"^## ", (DOCS / "studies.md").read_text(), flags=re.MULTILINE):
        tables = [[head, *rows.splitlines()] for head, rows in TABLE.findall(part + "\n")]
        yield part, [[row.strip("| ").split(" | ") for row in table] for table in tables]


def scores_of(folder, key=lambda record: (record.series, record.config["cap"])):
    """Scores of the records of a folder, by what `key` makes of a record."""
    scores = {}
    for record in read_records(ROOT / folder / "records.jsonl"):
        scores.setdefault(key(record), []).append(record.scores["bce"])
    return scores


def show(scores):
    """The cell of a table for these scores of several seeds."""
    half = f" ±{(max(scores) - min(scores)) / 2:.4f}" if len(scores) > 1 else ""
    return f"{sum(scores) / len(scores):.4f}{half}"


def folder_of(part, name):
    """The folder of the records of a section, from a heading such as "Anime, 3 seeds"."""
    (study,) = re.findall(r"^`recipes/studies/([\w-]+)\.toml`", part, re.MULTILINE)
    return f"results/real/studies-{study}{SETS[name.removesuffix(', 3 seeds')]}"


def test_tables_of_the_studies_are_those_of_their_records():
    """A column for each set, or a table for each with a column for each number of columns."""
    checked = 0
    for part, tables in studies():
        for head, *rows in (table for table in tables if "3 seeds" in " ".join(table[0])):
            for column, name in enumerate(head[1:], 1):
                folder = folder_of(part, name if head[0] == "series" else head[0])
                found = {series: show(each) for series, each in scores_of(folder, lambda r: r.series).items()}
                names = {row[0]: row[0] if head[0] == "series" else f"{row[0]}, {name}" for row in rows}
                shown = {names[row[0]]: row[column] for row in rows if row[column] != "–"}
                assert shown == {series: score for series, score in found.items() if series in shown}, folder
                assert head[0] != "series" or shown == found, folder
                checked += len(shown)
    assert checked == 133


def test_scores_of_the_verdicts_are_in_the_records_of_their_study():
    """Each is the mean of a series of the set's records: of the study that is named, or of one with the same runs."""
    checked = 0
    (table,) = (table for part, tables in studies() if part.startswith("Verdicts") for table in tables)
    for idea, _, *cells in table[1:]:
        (study,) = re.findall(r"`([\w-]+)`", idea)
        for cell, suffix in zip(cells, SETS.values(), strict=True):
            names = [f"studies-{name}{suffix}" for name in (study, "didnt-work", "columns")]
            folders = [ROOT / "results" / "real" / name for name in names]
            found = [each for folder in folders if folder.is_dir() for each in scores_of(folder).values()]
            found = {f"{sum(each) / len(each):.4f}" for each in found} | {f"{each[0]:.4f}" for each in found}
            shown = re.findall(r"0\.\d{4}", cell)
            assert set(shown) <= found, (idea, cell)
            checked += len(shown)
    assert checked >= 110


PROTOCOL = {"Book-Crossing": "bookcrossing", "Anime": "anime", "MovieLens 1M": "ml1m"}
SERIES = {"clustered, 8 columns": "cce", "cce-paper": "cce paper"}


def test_the_table_of_the_papers_protocol_is_that_of_the_records():
    (head, rows), *_ = (found for found in TABLE.findall((DOCS / "results.md").read_text()) if ", cap " in found[0])
    checked = 0
    for column, name in enumerate(head.split(" | ")[1:], 1):
        title, cap = name.split(", cap ")
        scores = scores_of(f"results/real/{PROTOCOL.get(title, 'criteo_dac80k')}")
        for row in rows.splitlines():
            cells = [cell.strip(" `") for cell in row.strip("|").split("|")]
            size = None if cells[0] == "full" else int(cap.replace(",", ""))
            if cells[column]:
                found = scores[SERIES.get(cells[0], cells[0]), size]
                assert cells[column] in (show(found), f"{sum(found) / len(found):.4f}"), (name, cells[0])
                checked += 1
    assert checked == 42


def test_every_record_belongs_to_a_page():
    """By its path, its recipe, its study or its benchmark."""
    text = "".join(page.read_text() for page in PAGES)
    folders = [path.name for path in (ROOT / "results" / "real").iterdir()]
    benchmarks = [path.stem for path in (ROOT / "results" / "bench").iterdir()]
    assert len(folders) >= 50
    assert len(benchmarks) >= 15
    for name in folders:
        study = re.sub(r"^(studies|tuned|defaults)-|-(anime|bookcrossing|ml1m|criteo_dac80k|\d+)$", "", name)
        ways = f"real/{name}", f"recipes/{name}.toml", f"studies/{study}.toml", f"`{name}`", f"`{study}`"
        assert any(way in text for way in ways), name
    assert not [name for name in benchmarks if f"benchmarks.{name}" not in text and f"bench/{name}" not in text]


QUOTED = {  # by page and heading: folders of results/real
    ("results", "Each method at its best"): ("defaults-*", "tuned-anime"),
    ("results", "Book-Crossing, tuned"): ("tuned-bookcrossing", "bookcrossing-min-count"),
    ("results", "MovieLens 1M, tuned"): ("tuned-ml1m", "studies-refit-rows-ml1m"),
    ("results", "Initial values"): ("starts-bookcrossing",),
    ("notes", "Int8 rows, then pointers"): ("studies-codes*", "studies-coarsening"),
    ("notes", "Where refits pay"): ("studies-refit-tables-*", "studies-refit-rows-*"),
}


@pytest.mark.parametrize(("page", "heading"), QUOTED)
def test_scores_of_a_section_are_those_of_its_records(page, heading):
    """Each is the mean over seeds of a series and size, on test rows or on validation rows."""
    parts = re.split(r"^#+ (.*)\n", (DOCS / f"{page}.md").read_text(), flags=re.MULTILINE)
    shown = re.findall(r"0\.[1-9]\d{3}(?: ±0\.\d{4})?", dict(zip(parts[1::2], parts[2::2], strict=True))[heading])
    found = set()
    for folder in (path for pattern in QUOTED[page, heading] for path in (ROOT / "results" / "real").glob(pattern)):
        runs = {}
        for record in read_records(folder / "records.jsonl"):
            runs.setdefault((record.series, record.config["cap"]), []).append(record)
        for each in runs.values():
            test = show([run.scores["bce"] for run in each])
            found |= {test, test[:6]}
            for at in (0, -1) if all(run.curve for run in each) else ():  # finalized, and after the last refit
                found.add(f"{statistics.mean(run.curve[at]['bce'] for run in each):.4f}")
    assert len(shown) >= 6
    assert sorted(set(shown) - found) == []


LETTERS = {"M": "ml1m", "A": "anime", "B": "bookcrossing", "C": "criteo_dac80k"}


def test_what_the_text_says_in_passing_is_judged_by_the_records():
    part = (DOCS / "paper-map.md").read_text().split("## What the text says in passing")[1].split("\n## ")[0]
    folders = {letter: ROOT / "results" / "real" / name for letter, name in LETTERS.items()}
    found = {show(each)[:6] for folder in folders.values() for each in scores_of(folder).values()}
    shown = re.findall(r"0\.\d{4}", part)
    assert len(shown) >= 20
    assert set(shown) <= found
    correlations = {letter: figure for figure, letter in re.findall(r"(0\.\d\d) on ([MABC])\b", part)}
    assert correlations == {letter: f"{rank_correlation(folder):.2f}" for letter, folder in folders.items()}


def rank_correlation(folder):
    """Of the means of BCE and of AUC over seeds, of all series and sizes."""
    ranks = []
    for metric, sign in (("bce", 1), ("auc", -1)):
        scores = {}
        for record in read_records(folder / "records.jsonl"):
            scores.setdefault((record.series, record.config["cap"]), []).append(sign * record.scores[metric])
        means = [statistics.mean(each) for each in scores.values()]
        ranks.append([sorted(means).index(mean) for mean in means])
    return statistics.correlation(*ranks)


def test_the_tables_of_tuned_methods_are_those_of_the_records():
    path = ROOT / "docs" / "tuned_tables.py"
    spec = importlib.util.spec_from_file_location("tuned_tables", path)
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    text = tables.PAGE.read_text("utf-8")
    assert tables.page(text) == text, "records have changed: run python docs/tuned_tables.py"
    assert text.count(tables.HEADER) == len(tables.HEADINGS) == 4


def notes():
    return (DOCS / "notes.md").read_text()


def test_the_table_of_other_forms_of_pointers_is_that_of_the_record():
    table = codings.table_of(json.loads((BENCH / "codings.json").read_text())["figures"])
    assert len(table.splitlines()) == 5
    assert table in notes()


def test_the_table_of_streams_is_that_of_the_records():
    records = [json.loads(line) for line in (BENCH / "stream.jsonl").read_text().splitlines()]
    for name, title in (("synthetic", "synthetic"), ("tennis", "tennis"), ("bookcrossing", "Book-Crossing")):
        own = [record for record in records if record["set"] == name]
        for score in ("progressive", "ahead"):
            ways = [("full", None), *((way, cap) for way in ("cce", "hash") for cap in (None, 0.5, 0.25, 0.1))]
            runs = [stream.chosen(own, way, cap) for way, cap in ways]
            full, *others = [f"{statistics.mean(run[score][stream.SHOWN]):.4f}" for run in runs]
            cells = [full, *others[:4], " / ".join(others[4:])]
            assert f"| {title}, {score} | {' | '.join(cells)} |" in notes().replace("**", "")


FITS = {
    "as `finalize` does": "as finalize does",
    "random start": "random, 64 rows, tol 0.01",
    "k-means++": "k-means++, 64 rows, tol 0.01",
    "k-means++, to convergence": "k-means++, 64 rows, tol 0",
    "the same, 256 rows in the sample for each row": "k-means++, 256 rows, tol 0",
}


def test_the_table_of_distortion_and_loss_is_that_of_the_record():
    figures = json.loads((BENCH / "clustering_quality.json").read_text())["figures"]
    for title, way in FITS.items():
        own = [each for each in figures if each["way"] == way]
        assert len(own) == 6  # MovieLens, then Grocery
        cells = [f"{each['distortion'] * 100:.1f} %, {each['more']:.4f}".replace(" 0.", " .") for each in own]
        assert f"| {title} | {' | '.join(cells)} |" in notes()
