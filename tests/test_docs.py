"""The documentation is true: its code runs and prints what it shows, its links lead somewhere, no method is missing."""

import contextlib
import importlib
import io
import re
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import cce
from cce.embeddings import METHODS
from cce.training import TrainConfig

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "_build" not in page.parts]
WITH_CODE = [page for page in PAGES if "```python" in page.read_text()]
FENCE = re.compile(r"^```(\S[^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"^\| (.*) \|\n\|[:|-]+\|\n((?:\|.*\|\n)+)", re.MULTILINE)
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
