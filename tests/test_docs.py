"""The documentation is true: its code runs and prints what it shows, its links lead somewhere, no method is missing."""

import contextlib
import importlib.util
import io
import re
import statistics
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import cce
from cce.embeddings import METHODS
from cce.records import read_records
from cce.training import TrainConfig

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "_build" not in page.parts]
WITH_CODE = [page for page in PAGES if "```python" in page.read_text()]
FENCE = re.compile(r"^```(\S[^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def blocks(page):
    """Each `python` block: its code, its first line in the file, and the `text` block right after it or None."""
    text = page.read_text()
    fences = list(FENCE.finditer(text))
    for fence, after in zip(fences, [*fences[1:], None], strict=True):
        if fence[1] == "python":
            follows = after is not None and after[1] == "text" and not text[fence.end() : after.start()].strip()
            yield fence[2], text.count("\n", 0, fence.start(2)), after[2] if follows else None


def run(page, code, line, namespace):
    """Execute one block, with the page's own line numbers, and give what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * line + code, name_of(page), "exec"), namespace)
    return printed.getvalue()


def lines(text):
    return [line.rstrip() for line in text.strip("\n").splitlines()]


@pytest.fixture(autouse=True)
def own_randomness():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_code_runs_and_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "documentation"}
    for code, line, shown in blocks(page):
        printed = run(page, code, line, namespace)
        assert lines(printed) == lines(shown or ""), f"{name_of(page)}, the block at line {line}"


def test_there_are_pages_and_blocks_to_run():
    found = [block for page in WITH_CODE for block in blocks(page)]
    assert len(WITH_CODE) >= 20
    assert len(found) >= 40
    assert sum(shown is not None for _, _, shown in found) >= 30


def test_every_python_block_is_executed():
    """No page marks a block as not to be run."""
    for page in WITH_CODE:
        assert page.read_text().count("```python") == len(list(blocks(page))), name_of(page)


def test_every_method_has_a_page_that_is_linked_and_shows_its_use():
    folder = ROOT / "docs" / "methods"
    index = (folder / "index.md").read_text()
    pages = {page.stem for page in folder.glob("*.md")} - {"index"}
    assert pages == set(cce.embeddings.list_methods())
    for method in cce.embeddings.list_methods():
        page = (folder / f"{method}.md").read_text()
        assert f"[`{method}`]({method}.md)" in index
        assert f"[`{method}`](docs/methods/{method}.md)" in (ROOT / "README.md").read_text()
        assert f"cce.embeddings.{METHODS[method].__name__}" in page
        assert "**Source.**" in page
        assert "**Budget.**" in page or "## Budget" in page


def test_every_method_has_a_drawing_on_its_page_and_in_the_index():
    folder = DOCS / "methods"
    assert len(cce.embeddings.list_methods()) >= 13
    for method in cce.embeddings.list_methods():
        assert (DOCS / "figures" / f"method-{method}.svg").is_file()
        for page in (f"{method}.md", "index.md"):
            assert f"](../figures/method-{method}.svg)" in (folder / page).read_text(), page


def test_every_figure_is_shown_somewhere():
    text = "".join(page.read_text() for page in PAGES)
    figures = [path.name for path in (DOCS / "figures").iterdir()]
    assert len(figures) >= 30
    assert not [name for name in figures if f"figures/{name}" not in text]


def test_every_public_name_is_on_the_page_of_names():
    names = re.findall(r"auto(?:class|function):: cce\.([\w.]+)", (ROOT / "docs" / "api.md").read_text())
    assert len(names) == len(set(names)) > 60
    for name in names:
        package, _, own = name.rpartition(".")
        assert hasattr(importlib.import_module(f"cce.{package}") if package else cce, own or name), name
    assert set(cce.__all__) - {"__version__"} <= {name.partition(".")[0] for name in names}


def test_every_option_of_cce_is_explained():
    page = (ROOT / "docs" / "methods" / "cce-paper.md").read_text()
    sizes = {"num_rows"}
    for option in set(cce.embeddings.ClusteredEmbedding.complete_options({})) - sizes:
        assert f"`{option}`" in page
    for setting in cce.clustering.ClusterSettings.__dataclass_fields__:
        assert f"`{setting}`" in page


def test_relative_links_lead_to_files():
    num_links = 0
    for page in [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md"]:
        for target in LINK.findall(FENCE.sub("", page.read_text())):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            place = (page.parent / file).resolve() if file else page
            assert place.exists(), f"{name_of(page)} links to {target}"
            assert not anchor or anchor in anchors(place), f"{name_of(page)} links to {target}"
            is_followed = place.suffix != ".md" or DOCS in place.parents or DOCS not in page.parents
            assert is_followed, f"{name_of(page)} links to {target}, which is no page of Sphinx's"
            num_links += 1
    assert num_links >= 60


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_guide_for_contributors_shows_eight_changes_in_files_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (table,) = (rows for head, rows in TABLE.findall(text) if head.startswith("change |"))
    named = set(re.findall(r"`((?:src|tests|docs)/[\w/]+\.?(?:py)?)`", text))
    assert len(table.splitlines()) == 8
    assert len(named) >= 20
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_files_named_by_the_paper_map_exist():
    named = set(re.findall(r"`([\w/]+\.py)`", (ROOT / "docs" / "paper-map.md").read_text()))
    assert len(named) >= 12
    for file in named:
        folders = (ROOT / "src" / "cce", ROOT / "src", ROOT)
        assert any((folder / file).exists() for folder in folders), file


def test_recipes_named_by_the_paper_map_exist_and_no_study_of_the_paper_is_missing():
    page = (ROOT / "docs" / "paper-map.md").read_text()
    named = set(re.findall(r"`(recipes/[\w/-]+\.toml)`", page))
    studies = {name_of(path) for path in (ROOT / "recipes" / "studies").glob("*.toml") if "tuning" not in path.stem}
    assert len(studies) >= 8
    assert studies <= named
    assert not [recipe for recipe in named if not (ROOT / recipe).exists()]


def test_the_paper_map_has_every_method_and_no_other():
    page = (ROOT / "docs" / "paper-map.md").read_text()
    linked = set(re.findall(r"\[`([\w-]+)`\]\(methods/\1\.md\)", page))
    assert linked == set(cce.embeddings.list_methods())


def test_what_the_paper_map_says_can_be_passed_on_the_command_line_can_be():
    page = (ROOT / "docs" / "paper-map.md").read_text()
    names = [field.name.replace("_", "-") for field in fields(TrainConfig)]
    options = {f"--{name}" for name in names} | {f"--no-{name}" for name in names} | {"--set"}
    commands = re.findall(r"`cce train ([^`]+)`", page)
    assert len(commands) >= 2
    assert {word for command in commands for word in re.findall(r"--[\w-]+", command)} <= options


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


def test_the_architecture_names_every_package():
    packages = {path.stem for path in (ROOT / "src" / "cce").iterdir() if path.suffix in ("", ".py")}
    packages -= {"__init__", "__main__", "__pycache__"}
    page = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(packages) >= 16
    assert not {name for name in packages if f"`{name}`" not in page}


OPENING = (
    "make demo",
    "make test",
    "pip install",
    "cce.compress(model",
    "](docs/figures/sizes.svg)",
    "**Who should not use it.**",
)
LANDING = ("pip install", "cce.compress(model", "](figures/overview.svg)", "**Another result.**")


def test_the_readme_opens_with_the_problem_a_picture_commands_and_a_model_of_ones_own():
    screen = (ROOT / "README.md").read_text().split("## ")[0]
    assert not [part for part in OPENING if part not in screen]
    landing = (ROOT / "docs" / "index.md").read_text()
    assert not [part for part in LANDING if part not in landing]


def test_the_first_examples_of_the_readme_are_short():
    own_model, papers_algorithm, one_table = (code for code, _, _ in blocks(ROOT / "README.md"))
    for code, most in ((own_model, 18), (papers_algorithm, 12), (one_table, 5)):
        assert len([line for line in code.splitlines() if line.strip()]) <= most
    added = re.findall(r"cce\.([\w.]+)\(.*  # (\d):", own_model)
    assert added == [("compress", "1"), ("optim.Adam", "2"), ("finalize", "3"), ("save", "4")]
    for name in ("create_embedding", "table(", "summary"):
        assert name in one_table


def test_lines_of_prose_are_short():
    """At most 100 characters; tables, headings, pictures, formulas and code may be wider."""
    pages = [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md"]
    for page in pages:
        prose = re.sub(r"^( *)```.*?^\1```$|^\$\$.*?\$\$$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        wide = [line for line in prose.splitlines() if len(line) > 100 and line[0] not in "|#!"]
        assert not wide, (name_of(page), wide)
    assert len(pages) >= 40


def test_every_page_has_a_purpose():
    """Each page is in one list of the landing page."""
    landing = (ROOT / "docs" / "index.md").read_text()
    lists = re.findall(r"^:caption: ([^\n]*)\n\n(.*?)```", landing, re.MULTILINE | re.DOTALL)
    assert [caption for caption, _ in lists] == ["Tutorial", "How to", "Reference", "Explanation", "Results"]
    named = [page for _, pages in lists for page in pages.split()]
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"} | {"methods/index"}
    assert len(named) >= 20
    assert sorted(named) == sorted(pages)


def test_the_tables_of_tuned_methods_are_those_of_the_records():
    path = ROOT / "docs" / "tuned_tables.py"
    spec = importlib.util.spec_from_file_location("tuned_tables", path)
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    text = tables.PAGE.read_text("utf-8")
    assert tables.page(text) == text, "records have changed: run python docs/tuned_tables.py"
    assert text.count(tables.HEADER) == len(tables.HEADINGS) == 4
