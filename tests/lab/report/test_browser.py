"""The page in a real browser: charts are drawn, tables sort, points speak, and nothing is fetched or amiss."""

import json
import re
import shutil
from importlib.util import find_spec

import pytest

from cce.records import write_records
from cce.runs import load_run
from cce_lab.report import vega, write_run_page
from cce_lab.report.reading import collect
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
LIVE = 'data = "data/clicks"\nmodel = "dlrm"\nmethod = "hash"\ncap = 8000\nepochs = 10\n'


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
    write_report(collect([folder]), folder / "report", figures=False)
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
    assert seen.page.locator(f"{GROUP} figure").count() == 12
    figures = seen.page.locator(f"{GROUP} figure:visible")
    assert figures.count() == 6
    for index in range(6):
        figure = figures.nth(index)
        assert figure.locator("svg").count() == 1
        assert figure.locator("svg .mark-symbol path, svg .mark-line path").count() > 0
        assert figure.locator("svg").bounding_box()["width"] > 250
    assert seen.requests == [report.as_uri()]
    assert "hash reaches the full table's BCE" in seen.page.locator(f"{GROUP} .headline").text_content()


def test_lines_have_the_colours_of_the_legend(visit):
    page = visit().page
    colour = page.locator(f'{GROUP} .legend [data-series="cce"] i').evaluate("e => getComputedStyle(e).backgroundColor")
    strokes = page.locator(f'{GROUP} [data-plot="bce-training"] svg .mark-line path').evaluate_all(
        "all => all.map(e => getComputedStyle(e).stroke)"
    )
    assert colour == "rgb(213, 94, 0)"
    assert len(set(strokes)) == len(strokes) >= 3
    assert colour in strokes


def test_tables_sort_by_value_by_mouse_and_by_keyboard(visit):
    seen = visit()
    header = seen.page.locator(f"{SUMMARY} th", has_text=re.compile("^params$"))
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "ascending"
    numbers = [int(text.replace(",", "")) for text in seen.column(SUMMARY, 7)]
    assert len(numbers) == 26
    assert numbers == sorted(numbers)
    header.locator("button").press("Enter")
    assert header.get_attribute("aria-sort") == "descending"
    assert [int(text.replace(",", "")) for text in seen.column(SUMMARY, 7)] == sorted(numbers, reverse=True)
    series = seen.page.locator(f"{SUMMARY} th", has_text="series")
    series.locator("button").focus()
    seen.page.keyboard.press("Space")
    assert seen.column(SUMMARY, 1) == sorted(seen.column(SUMMARY, 1))
    assert header.get_attribute("aria-sort") == "none"


def test_bytes_sort_by_size_and_what_is_missing_comes_last(visit):
    seen = visit()
    factors = 'table[data-name="clicks-dlrm-10-epochs-factors"]'
    for _ in range(2):
        seen.page.locator(f"{factors} th", has_text="expected").first.locator("button").click()
        assert [text == "–" for text in seen.column(factors, 7)] == [False, True, True, True]
    header = seen.page.locator(f"{SUMMARY} th", has_text=re.compile("^served bytes$"))
    header.locator("button").click()
    texts = seen.column(SUMMARY, 5)
    units = {"B": 1, "kB": 1e3, "MB": 1e6}
    sizes = [float(text.split()[0]) * units[text.split()[1]] for text in texts]
    assert sizes == sorted(sizes)
    assert {"kB", "MB"} <= {text.split()[1] for text in texts}


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


def test_another_budget_gives_other_curves(visit):
    page = visit().page
    curves = f'{GROUP} [data-plot="bce-curves"] svg .mark-line path'
    before = page.locator(curves).evaluate_all("all => all.map(e => e.getAttribute('d'))")
    assert page.locator(f"{GROUP} select.budget").input_value() == "cap 8,000"
    assert page.locator(f'{GROUP} [data-plot="bce-curves"] svg .mark-rule.role-mark line').count() == 3  # clusterings
    page.locator(f"{GROUP} select.budget").select_option("cap 500")
    page.wait_for_function(
        "([where, old]) => document.querySelector(where).getAttribute('d') !== old[0]", arg=[curves, before]
    )
    assert page.locator(curves).count() == 4


def test_another_metric_has_charts_of_its_own_and_is_remembered(visit):
    page = visit().page
    drawn = f'{GROUP} figure[data-plot="auc-training"] svg .mark-line path'
    assert page.locator(f"{GROUP} select.metric").input_value() == "bce"
    assert page.locator(drawn).count() == 0
    page.locator(f"{GROUP} select.metric").select_option("auc")
    page.locator(drawn).first.wait_for(state="attached")
    shown = page.locator(f"{GROUP} figure:visible").evaluate_all("all => all.map(e => e.dataset.plot)")
    assert shown == ["factors", "auc-training", "auc-curves", "churn", "h1", "h2"]
    assert page.locator(f'{GROUP} [data-plot="auc-training"] svg').bounding_box()["width"] > 250
    page.locator(f"{GROUP} select.size").select_option("params")
    page.locator(f'{GROUP} [data-plot="auc-params"] svg').wait_for()
    assert not page.locator(f'{GROUP} [data-plot="auc-training"]').is_visible()
    page.locator(f"{GROUP} select.size").select_option("training")
    page.locator(f"{GROUP} select.budget").select_option("cap 500")  # a hidden chart of curves stays hidden
    assert not page.locator(f'{GROUP} [data-plot="bce-curves"]').is_visible()
    page.evaluate("delete document.documentElement.dataset.drawn; location.reload()")
    page.wait_for_selector("html[data-drawn]", timeout=60_000)
    assert page.locator(f"{GROUP} select.metric").input_value() == "auc"
    assert page.locator(drawn).count() > 0


def test_charts_without_a_clustering_under_the_chosen_budget_are_put_away(visit):
    page = visit().page
    churn = page.locator(f'{GROUP} [data-plot="churn"]')
    assert churn.is_visible()
    page.locator(f"{GROUP} select.budget").select_option("cap 100")
    assert not churn.is_visible()
    page.locator(f"{GROUP} select.budget").select_option("cap 500")
    assert churn.is_visible()


def test_the_ledger_shows_the_run_that_is_chosen(visit):
    seen = visit()
    seen.page.locator(f"{GROUP} select.run").select_option(label="cce, cap 8,000")
    ledger = f"{GROUP} .ledger table"
    assert seen.page.locator(f"{ledger} th").count() == seen.page.locator(f"{ledger} tbody tr:first-child td").count()
    assert seen.column(ledger, 1)[:2] == ["all tables", "tables.C3"]
    assert seen.column(ledger, 4)[1] == "8,000"
    assert seen.column(ledger, 5)[1:3] == ["32.0 kB", "32.0 kB"]
    assert seen.column(ledger, 12)[1] == "400×"
    seen.page.locator(f"{ledger} th", has_text="ids").locator("button").click()
    assert seen.column(ledger, 1)[0] == "tables.C9"


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
    widths = page.locator("figure svg").evaluate_all("all => all.map(e => e.getBoundingClientRect().right)")
    assert len(widths) >= 6
    assert max(widths) <= 360
    assert page.locator(SUMMARY).evaluate("e => e.scrollWidth > e.parentElement.clientWidth")


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (1440, "dark"), (390, "light"), (390, "dark")])
def test_nothing_is_cut_on_a_screen_and_on_a_phone(visit, width, scheme):
    page = visit(viewport={"width": width, "height": 900}, color_scheme=scheme).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    hidden = "all => all.filter(e => e.scrollWidth > e.clientWidth).map(e => e.querySelector('table').dataset.name)"
    if width == 1440:
        assert page.locator(".wide").count() >= 6
        assert page.locator(".wide").evaluate_all(hidden) == []
    texts = page.locator(f'{GROUP} [data-plot="factors"] svg .mark-text.role-mark text')
    ends = texts.evaluate_all("all => all.map(e => e.getBoundingClientRect().right)")
    assert len(ends) >= 7
    assert max(ends) <= width


def test_the_page_of_a_run_fits_screens_and_phones_and_runs_no_raw_value(visit, odd_run, tmp_path):
    write_run_page(load_run(odd_run), tmp_path / "page.html")
    for width, scheme in ((1440, "light"), (1440, "dark"), (390, "light"), (390, "dark")):
        seen = visit(tmp_path / "page.html", viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = seen.page
        assert page.title() == "cce run: run"
        assert page.locator("figure svg").count() == 7
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ends = page.locator("figure svg").evaluate_all("all => all.map(e => e.getBoundingClientRect().right)")
        assert max(ends) <= width
        cut = page.locator(".wide").evaluate_all("all => all.filter(e => e.scrollWidth > e.clientWidth).length")
        assert cut == 0 or width == 390
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}[scheme]
        assert seen.requests == [(tmp_path / "page.html").as_uri()]
    marks = page.locator('[data-plot="calibration"] svg .mark-symbol path')
    assert marks.count() >= 2
    assert seen.column('table[data-name="user-neighbours"]', 1)[0].startswith("<script>")


def test_bounds_are_hollow_and_a_series_that_is_not_compared_is_still_there(visit):
    page = visit().page
    symbols = page.locator(f'{GROUP} [data-plot="factors"] svg .mark-symbol.role-mark path')
    fills = symbols.evaluate_all("all => all.map(e => e.getAttribute('fill'))")
    assert "transparent" in fills  # ce-concat is extrapolated
    assert len(set(fills)) > 1
    assert (
        "robe" in page.locator(f'{GROUP} [data-plot="factors"] svg').text_content()
    )  # of one size, which is too large


def test_the_page_of_a_single_run_has_numbers_on_its_axes(visit, tmp_path):
    write_records([made_record("cce", 500, bce=0.5435)], tmp_path / "records.jsonl")
    write_report(collect([tmp_path]), tmp_path / "report", figures=False)
    page = visit(tmp_path / "report" / "index.html").page
    chart = f'{GROUP} [data-plot="bce-training"] svg .role-axis-label text'
    labels = page.locator(chart).all_text_contents()
    assert "0.5435" in labels
    assert sum(label.endswith("B") for label in labels) >= 2
    assert "Compression factors" not in page.locator(GROUP).text_content()


def test_odd_names_are_shown_as_they_are(visit):
    page = visit().page
    assert page.locator("#clicks-dlrm-1-epoch .legend button").text_content() == "<b>odd</b> & 'quoted'"
    assert page.locator("main b b").count() == 0


def test_a_page_that_watches_keeps_its_place(visit, tmp_path):
    write_records(made_records(("cce",)), tmp_path / "records.jsonl")
    run = tmp_path / "runs" / "hash-1"
    run.mkdir(parents=True)
    (run / "config.toml").write_text(LIVE)
    lines = [{"kind": "validation", "step": 100 * n, "bce": 0.5 - n / 100, "auc": 0.7} for n in range(1, 4)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_report(collect([tmp_path]), tmp_path / "report", figures=False, reload_seconds=2.0)
    seen = visit(tmp_path / "report" / "index.html")
    page = seen.page
    assert page.locator(".progress").text_content() == "27 of 28 runs finished, 1 under way"
    header = page.locator(f"{SUMMARY} th", has_text=re.compile("^BCE$"))
    header.locator("button").click()
    page.locator(f"{GROUP} select.budget").select_option("cap 500")
    page.evaluate("window.before = true; scrollTo(0, 700)")
    page.wait_for_function("() => !window.before", timeout=60_000)
    seen.wait()
    page.wait_for_function("() => scrollY === 700", timeout=10_000)
    assert header.get_attribute("aria-sort") == "ascending"
    assert page.locator(f"{GROUP} select.budget").input_value() == "cap 500"
