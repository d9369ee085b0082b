"""The page in a real browser: charts are drawn, tables sort, points speak, and nothing is fetched or amiss."""

import re
import shutil
from importlib.util import find_spec

import pytest

from cce.records import write_records
from cce.runs import load_run
from cce_lab.report import vega
from cce_lab.report.groups import collect
from cce_lab.report.run_page import write_run_page
from cce_lab.report.writing import write_report
from helpers.made_records import made_record, made_records

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = [
    what
    for what, there in (
        ("chromium (apt install chromium)", CHROMIUM),
        ("playwright", find_spec("playwright")),
        ("vl-convert", vega.can_draw()),
    )
    if not there
]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")]
RECIPE = '[expected]\nsource = "a paper"\n[expected.compression]\ncce = 150\n'


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A page of two groups."""
    folder = tmp_path_factory.mktemp("sweep")
    other = made_record("cce", 500, series="<b>odd</b> & 'quoted'")
    other.config["epochs"] = 1
    write_records(
        [*made_records(("cce", "hash", "ce-concat")), made_record("robe", 100), other], folder / "records.jsonl"
    )
    (folder / "recipe.toml").write_text(RECIPE)
    write_report(collect([folder]), folder / "report")
    return folder / "report" / "index.html"


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        # as root, and in most containers, there is no sandbox, and little shared memory; the pages are our own
        flags = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = tool.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


class Visit:
    """A page that is open, with all that it said and asked for."""

    def __init__(self, browser, path, **options):
        self.context = browser.new_context(**({"viewport": {"width": 1200, "height": 900}} | options))
        self.page = self.context.new_page()
        self.said, self.requests = [], []
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.wait()

    def wait(self):
        self.page.wait_for_selector("html[data-drawn]", timeout=60_000)

    def column(self, table, index):
        return self.page.locator(f"{table} tbody tr td:nth-child({index})").all_text_contents()


@pytest.fixture
def visit(browser, report):
    visits = []

    def go(path=report, **options):
        visits.append(Visit(browser, path, **options))
        return visits[-1]

    yield go
    for each in visits:
        each.context.close()
        assert each.said == []


GROUP = "#clicks-dlrm-10-epochs"
SUMMARY = 'table[data-name="clicks-dlrm-10-epochs-summary"]'


def test_charts_are_drawn_and_nothing_is_fetched_or_amiss(visit, report):
    seen = visit()
    assert seen.page.locator(f"{GROUP} figure").count() == 7
    figures = seen.page.locator(f"{GROUP} figure:visible")
    assert figures.count() == 2
    for index in range(2):
        figure = figures.nth(index)
        assert figure.locator("svg.marks").count() == 1
        assert figure.locator("svg .mark-symbol path, svg .mark-line path").count() > 0
        assert figure.locator("svg.marks").bounding_box()["width"] > 250
    assert seen.requests == [report.as_uri()]
    assert "hash reaches the full table's BCE" in seen.page.locator(f"{GROUP} .headline").text_content()


def test_tables_sort_by_value_by_mouse_and_by_keyboard(visit):
    seen = visit()
    header = seen.page.locator(f"{SUMMARY} th", has_text=re.compile("^params$"))
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "ascending"
    numbers = [int(text.replace(",", "")) for text in seen.column(SUMMARY, 10)]
    assert len(numbers) == 26
    assert numbers == sorted(numbers)
    header.locator("button").press("Enter")
    assert header.get_attribute("aria-sort") == "descending"
    assert [int(text.replace(",", "")) for text in seen.column(SUMMARY, 10)] == sorted(numbers, reverse=True)
    series = seen.page.locator(f"{SUMMARY} th", has_text="series")
    series.locator("button").focus()
    seen.page.keyboard.press("Space")
    assert seen.column(SUMMARY, 1) == sorted(seen.column(SUMMARY, 1))
    assert header.get_attribute("aria-sort") == "none"


def test_a_point_tells_its_numbers_when_it_is_pointed_at(visit):
    page = visit().page
    points = page.locator(f'{GROUP} [data-plot="bce-training"] svg .mark-symbol path')
    points.first.evaluate("e => e.scrollIntoView({block: 'center'})")
    points.first.hover()
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    text = tooltip.inner_text()
    for word in ("series", "budget", "training bytes", "mean", "least", "greatest"):
        assert word in text
    assert re.search(r"0\.4\d{4}", text)


def test_the_legend_highlights(visit):
    page = visit().page
    button = page.locator(f'{GROUP} .legend [data-series="hash"]')
    lines = page.locator(f'{GROUP} [data-plot="bce-training"] svg .mark-line path')
    opacities = "all => all.map(e => Number(getComputedStyle(e).opacity))"
    assert set(lines.evaluate_all(opacities)) == {1}
    button.click()
    page.wait_for_function(
        f"""() => [...document.querySelectorAll('{GROUP} [data-plot="bce-training"] svg .mark-line path')]
        .filter(e => Number(getComputedStyle(e).opacity) < 0.5).length >= 2"""
    )
    assert button.get_attribute("aria-pressed") == "true"
    assert sum(opacity == 1 for opacity in lines.evaluate_all(opacities)) == 1
    button.click()
    page.wait_for_function(
        f"""() => [...document.querySelectorAll('{GROUP} [data-plot="bce-training"] svg .mark-line path')]
        .every(e => Number(getComputedStyle(e).opacity) === 1)"""
    )


def test_another_metric_has_charts_of_its_own(visit):
    page = visit().page
    drawn = f'{GROUP} figure[data-plot="auc-training"] svg .mark-line path'
    assert page.locator(f"{GROUP} select.metric").input_value() == "bce"
    assert page.locator(drawn).count() == 0
    page.locator(f"{GROUP} select.metric").select_option("auc")
    page.locator(drawn).first.wait_for(state="attached")
    shown = page.locator(f"{GROUP} figure:visible").evaluate_all("all => all.map(e => e.dataset.plot)")
    assert shown == ["auc-training", "bce-curves"]
    assert page.locator(f'{GROUP} [data-plot="auc-training"] svg.marks').bounding_box()["width"] > 250
    page.locator(f"{GROUP} select.size").select_option("params")
    page.locator(f'{GROUP} [data-plot="auc-params"] svg.marks').wait_for()
    assert not page.locator(f'{GROUP} [data-plot="auc-training"]').is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_follow_the_system_and_the_button(visit, scheme):
    page = visit(color_scheme=scheme).page
    paper = "getComputedStyle(document.body).backgroundColor"
    label = "document.querySelector('svg .mark-text.role-axis-label text').getAttribute('fill')"
    colours = {"light": ("rgb(255, 255, 255)", "#5b6470"), "dark": ("rgb(20, 23, 28)", "#9ba4b0")}
    other = "dark" if scheme == "light" else "light"
    assert (page.evaluate(paper), page.evaluate(label)) == colours[scheme]
    page.locator("#theme").click()
    page.wait_for_function(f"() => {label} === '{colours[other][1]}'")
    assert page.evaluate(paper) == colours[other][0]


def test_on_a_phone_only_tables_scroll_sideways(visit):
    page = visit(viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True).page
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    widths = page.locator("figure svg.marks").evaluate_all("all => all.map(e => e.getBoundingClientRect().right)")
    assert len(widths) >= 3
    assert max(widths) <= 360
    assert page.locator(SUMMARY).evaluate("e => e.scrollWidth > e.parentElement.clientWidth")


def test_the_page_of_a_run_fits_screens_and_phones_and_runs_no_raw_value(visit, odd_run, tmp_path):
    write_run_page(load_run(odd_run), tmp_path / "page.html")
    for width, scheme in ((1440, "light"), (1440, "dark"), (390, "light"), (390, "dark")):
        seen = visit(tmp_path / "page.html", viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = seen.page
        assert page.title() == "cce run: run"
        assert page.locator("figure svg.marks").count() == page.locator("figure").count() == 2
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ends = page.locator("figure svg.marks").evaluate_all("all => all.map(e => e.getBoundingClientRect().right)")
        assert max(ends) <= width
        cut = page.locator(".wide").evaluate_all("all => all.filter(e => e.scrollWidth > e.clientWidth).length")
        assert cut == 0 or width == 390
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}[scheme]
        assert seen.requests == [(tmp_path / "page.html").as_uri()]
    assert seen.column('table[data-name="user-neighbours"]', 1)[0].startswith("<script>")


def test_odd_names_are_shown_as_they_are(visit):
    page = visit().page
    assert page.locator("#clicks-dlrm-1-epoch .legend button").text_content() == "<b>odd</b> & 'quoted'"
    assert page.locator("main b b").count() == 0
