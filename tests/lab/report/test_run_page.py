"""The page of one run: what is in it, what is escaped, and what is left out."""

import html
import re
import shutil

import pytest

from cce.runs import load_run, pack_run
from cce_lab.report import vega
from cce_lab.report.run_page import write_run_page
from helpers.runs import tiny_data

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not vega.can_draw(), reason="without vl-convert there is no page")]
PARTS = ("scores", "tables", "clusterings", "neighbours", "provenance")


def page_of(run, out, **options):
    left_out = write_run_page(run, out, **options)
    text = out.read_text(encoding="utf-8")
    return text.replace(vega.javascript(), ""), left_out


def column(page, table, index):
    body = re.search(rf'data-name="{table}".*?<tbody>(.*?)</tbody>', page, re.DOTALL)[1]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in body.strip().splitlines()]
    return [html.unescape(row[index]) for row in rows]


def test_the_page_of_a_run_has_every_part_and_escapes_raw_values(odd_run, tmp_path):
    run = load_run(odd_run)
    page, left_out = page_of(run, tmp_path / "page.html")
    assert left_out == []
    assert tuple(re.findall(r'<section id="([^"]+)"', page)) == PARTS
    assert re.findall(r'data-plot="([^"]+)"', page) == ["bce-curve", "auc-curve"]
    assert page.count("<script") == 3  # data, vega and our own
    script = run.vocabularies["user"].values([1])[0]
    assert script.startswith("<script>")
    assert column(page, "user-neighbours", 0)[0] == script
    nearest = column(page, "item-neighbours", 2)
    assert len(nearest) == 12
    assert all(re.fullmatch(r"10\d\d · -?[01]\.\d\d", each) for each in nearest)
    assert column(page, "memory", 0)[-1] == "all tables"
    assert column(page, "clusterings", 0) == ["tables.tables.user", "tables.tables.item"]
    for entropies in (column(page, "clusterings", 6), column(page, "clusterings", 7)):
        assert all(float(found) > 0 for found in entropies)
    assert f"Test: BCE {run.scores['bce']:.5f}" in page


def test_a_pack_without_its_data_set_has_what_it_holds(odd_run, tmp_path):
    shutil.copytree(odd_run, tmp_path / "run")
    pack_run(tmp_path / "run", tmp_path / "one.ccez")
    page, left_out = page_of(load_run(tmp_path / "one.ccez"), tmp_path / "page.html")
    assert left_out == []
    assert re.findall(r'data-plot="([^"]+)"', page) == ["bce-curve", "auc-curve"]
    assert len(column(page, "user-neighbours", 0)) == 12


def test_an_unfinished_run_has_the_tables_of_its_model(odd_run, tmp_path):
    shutil.copytree(odd_run, tmp_path / "run")
    (tmp_path / "run" / "record.jsonl").unlink()
    page, left_out = page_of(load_run(tmp_path / "run"), tmp_path / "page.html")
    assert left_out == []
    assert "step 8, not finished</p>" in page
    assert "No test scores. Tables: " in page
    assert len(column(page, "memory", 0)) == 4


def test_a_run_without_raw_values_has_no_neighbours_and_a_folder_is_no_page(tmp_path):
    from cce.training import Trainer
    from helpers.runs import tiny_config

    Trainer(tiny_config(tiny_data(tmp_path / "data"), max_steps=4, method="hash"), tmp_path / "run").run()
    run = load_run(tmp_path / "run")
    _, left_out = page_of(run, tmp_path / "page.html")
    assert [line.partition(":")[0] for line in left_out] == ["Clusterings", *["Nearest values"] * len(left_out[1:])]
    assert left_out[0] == "Clusterings: of this run no clustering and no refit is known."
    assert len(left_out) == 4
    with pytest.raises(IsADirectoryError, match="page must be a file, got the folder"):
        write_run_page(run, tmp_path)
