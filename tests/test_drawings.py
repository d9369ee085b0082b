"""The drawings of the documentation: drawn by the code beside them, true to the methods, readable."""

import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest
from drawings import DRAWINGS
from drawings.cluster_event import HELPER, M, cluster, pieces
from drawings.codes import CLUSTERS, nearest
from drawings.codes import CODES as FINE_CODES
from drawings.dhe import NUM_HASHES, U
from drawings.linear import PRODUCTS
from drawings.matrices import DIM, NUM_IDS, multiply
from drawings.overview import COLUMNS, COMPRESSION, NUM_ROWS
from drawings.products import BLOCKS
from drawings.refit import CODES, chosen, cost, parabola
from drawings.robe import OFFSETS, SIZE, positions
from drawings.sizes import cce_nbytes

import cce
from cce.budget import FULL_SIZED

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "figures"
BUDGET = 32  # parameters that the drawings spend on 8 ids of 8 values
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
LINEAR = {product.method: product for product in PRODUCTS}


def table_of(method):
    budget = {} if method in FULL_SIZED else {"num_params": BUDGET}
    return cce.create_embedding(method, NUM_IDS, DIM, seed=0, **budget)


@pytest.mark.parametrize("name", DRAWINGS)
def test_the_file_is_what_the_code_draws(name):
    assert (FIGURES / f"{name}.svg").read_text(encoding="utf-8") == DRAWINGS[name](), "run `make figures`"


def test_every_method_has_a_drawing_on_its_page_and_in_the_index():
    index = (ROOT / "docs" / "methods" / "index.md").read_text()
    assert len(cce.list_methods()) >= 13
    for method in cce.list_methods():
        figure = f"](../figures/method-{method}.svg)"
        assert figure in (ROOT / "docs" / "methods" / f"{method}.md").read_text()
        assert figure in index


def test_a_drawn_id_points_to_the_cluster_that_it_was_counted_in():
    for column, clusters in enumerate(CLUSTERS):
        for found, members in enumerate(clusters):
            assert {nearest(FINE_CODES[index], column) for index in members} == {found}


def test_every_drawing_is_shown_somewhere():
    pages = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    assert len(DRAWINGS) >= 16
    assert not [name for name in DRAWINGS if f"figures/{name}.svg" not in pages]


@pytest.mark.parametrize("method", LINEAR)
def test_a_drawn_codebook_has_the_shape_of_the_real_one(method):
    product = LINEAR[method]
    widths = {row.stop - row.start for row in product.m}
    assert widths == {table_of(method).codebook.shape[1]}
    assert len(product.m) == table_of(method).codebook.shape[0]


@pytest.mark.parametrize("method", LINEAR)
def test_every_value_of_a_drawn_table_has_as_many_terms_as_its_formula(method):
    terms = {"hash-embedding": 2, "ce-sum": 2, "cce-paper": 2}.get(method, 1)
    cells = [paints for row in multiply(LINEAR[method].h, LINEAR[method].m) for paints in row]
    assert len(cells) == NUM_IDS * DIM
    assert {len(paints) for paints in cells} == {terms}


def test_drawn_sizes_of_the_other_methods_are_real_ones():
    assert [tuple(core.shape) for core in table_of("tt").cores] == [(2, 4), (2, 8), (2, 4)]
    assert table_of("robe").codebook.shape == (SIZE, 1)
    assert table_of("robe").block_size == DIM // len(OFFSETS[0])
    assert table_of("dhe").layers[0].shape == (NUM_HASHES, NUM_HASHES)
    assert {len(row) for row in U} == {NUM_HASHES}
    assert [tuple(p.shape) for p in table_of("collide").parameters()] == [(NUM_IDS, 2), (2, DIM)]
    assert [tuple(p.shape) for p in table_of("low-rank").parameters()] == [(NUM_IDS, 2), (2, DIM)]
    sizes, dims = zip(*[block[:2] for block in BLOCKS], strict=True)
    mixed = cce.MixedDimensionEmbedding(NUM_IDS, DIM, block_sizes=sizes, block_dims=dims)
    assert mixed.num_params <= BUDGET


def test_blocks_of_robe_go_on_at_the_beginning():
    assert positions(2)[:2] == [SIZE - 1, 0]


def test_the_drawn_event_ends_at_the_means_of_its_clusters():
    points, (pointers, centroids) = pieces(), cluster(pieces())
    assert len(set(points)) == len(M) * len(HELPER)
    for row, centroid in enumerate(centroids):
        members = [point for point, pointer in zip(points, pointers, strict=True) if pointer == row]
        assert len(members) == len(HELPER)
        assert centroid == pytest.approx(tuple(sum(values) / len(members) for values in zip(*members, strict=True)))


@pytest.mark.slow
@pytest.mark.parametrize("compression", [100, 10_000])
def test_drawn_bytes_are_those_of_a_real_table(compression):
    table = cce.create_embedding("cce-paper", 1_000_000, 16, compression=compression, seed=0)
    codebook, pointers = cce_nbytes(compression)
    assert table.codebook_nbytes == codebook
    assert table.pointer_nbytes == pytest.approx(pointers, abs=1_000)  # seeds of hash functions are not drawn


@pytest.mark.slow
def test_the_sizes_of_the_overview_are_those_of_a_real_table():
    table = cce.create_embedding("cce-paper", 1_000_000, 16, compression=COMPRESSION, seed=0)
    assert (table.num_rows, table.num_columns, table.num_params) == (NUM_ROWS, len(COLUMNS), 8_000)
    assert f"{table.pointer_nbytes / 1e6:.1f} MB" == "4.0 MB"
    assert f"{table.codebook_nbytes / 1e6:.2f} MB" == "0.03 MB"


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_stands_alone_and_follows_light_and_dark(name):
    text = (FIGURES / f"{name}.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert root.find("{http://www.w3.org/2000/svg}title").text
    assert "prefers-color-scheme: dark" in text
    assert set(re.findall(r"https?://[^\"]+", text)) == {"http://www.w3.org/2000/svg"}


SIZE_OF_PAGE = "() => ['width', 'height'].map(side => document.documentElement.viewBox.baseVal[side])"
BOXES = """() => [...document.querySelectorAll('text')].map(text => {
    const box = text.getBBox();
    return [text.textContent, box.x, box.y, box.x + box.width, box.y + box.height];
})"""


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None or find_spec("playwright") is None:
        pytest.skip("needs Chromium and playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        flags = ["--no-sandbox"] if os.getuid() == 0 else []  # Chromium refuses its sandbox to root
        browser = tool.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


def overlap(one, other):
    """Whether two lines of text touch; lines may share a little of the room above and below letters."""
    (_, left, top, right, bottom), (_, left2, top2, right2, bottom2) = one, other
    return left < right2 and left2 < right and top + 3 < bottom2 and top2 + 3 < bottom


@pytest.mark.slow
def test_texts_stay_inside_and_apart(browser):
    page = browser.new_page()
    for name in DRAWINGS:
        page.goto((FIGURES / f"{name}.svg").as_uri())
        width, height = page.evaluate(SIZE_OF_PAGE)
        boxes = page.evaluate(BOXES)
        assert boxes, name
        assert not [b[0] for b in boxes if b[1] < 4 or b[2] < 0 or b[3] > width - 4 or b[4] > height], name
        assert not [(a[0], b[0]) for i, a in enumerate(boxes) for b in boxes[:i] if overlap(a, b)], name


def test_the_code_of_the_refit_costs_the_least_and_is_not_the_nearest():
    curvature, wanted = parabola()
    costs = [cost(code, wanted, curvature) for code in CODES]
    assert cost(chosen(), wanted, curvature) == min(costs)
    nearest = min(CODES, key=lambda code: (code[0] - wanted[0]) ** 2 + (code[1] - wanted[1]) ** 2)
    assert chosen() != nearest
