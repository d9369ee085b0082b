"""The page as text: everything is in it, nothing is fetched, nothing of a record is taken for HTML."""

import json
import re
from dataclasses import asdict, replace

import pytest

from cce.training.config import TrainConfig, make_config
from cce_lab.report import vega
from cce_lab.report.groups import Collected
from cce_lab.report.page import fill_page, given_options, make_page
from cce_lab.report.writing import make_sections
from helpers.made_records import made_record, made_records

needs_vega = pytest.mark.skipif(not vega.can_draw(), reason="vl-convert is not installed")
EVIL = '<script>alert("x")</script>'


def page_of(found):
    return make_page(found, make_sections(found))


def without_vega(page):
    return page.replace(vega.javascript(), "")


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


@pytest.mark.slow
@needs_vega
def test_every_part_is_there():
    expected = {("clicks", "dlrm", 10): {"source": "Tsang & Ahle", "full_bce": 0.45, "compression": {"cce": 8500}}}
    found = Collected(
        records=made_records(), recipes={"sweeps/a.toml": "caps = [1]"}, expected=expected, notes=["a note"]
    )
    page = without_vega(page_of(found))
    for heading in ("Compression factors", "Summary", "To make it again", "Environment"):
        assert f">{heading}</h3>" in page
    for words in (
        "<h2>clicks, dlrm, 10 epochs</h2>",
        "hash reaches the full table&#x27;s BCE with",
        "Expected: Tsang &amp; Ahle. Full table there: BCE 0.4500, here 0.4519.",
        "cce sweep sweeps/a.toml",
        "options of 123 runs",
        "<li>a note</li>",
        "0123456789ab",
        "123 runs",
    ):
        assert words in page, words
    assert page.count("<figure") == 7
    assert page.count(" hidden><figcaption>") == 5  # of AUC, and against other sizes
    assert "{{" not in page


@needs_vega
def test_what_is_expected_of_the_full_table_is_that_of_the_leading_metric():
    expected = {("clicks", "dlrm", 10): {"source": "a paper", "full_bce": 0.45, "full_auc": 0.71}}
    records = [made_record("full", None, scores={"auc": 0.7}, curve=[])]
    assert "Full table there: AUC 0.7100, here 0.7000." in page_of(Collected(records=records, expected=expected))


@needs_vega
def test_nothing_is_fetched():
    page = page_of(Collected(records=made_records()))
    own = without_vega(page)
    assert "http://" not in own
    assert "https://" not in own
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)""", own)
    assert page.count("window.vegaEmbed =") + page.count("window.vegaEmbed=") == 1  # one script for all charts


@needs_vega
def test_nothing_of_a_record_is_taken_for_html():
    record = made_record("cce", 500, series=EVIL, name=EVIL, environment={EVIL: EVIL})
    record.config.update(data=f"data/{EVIL}", model=EVIL)
    tables = tuple(replace(table, name=EVIL, method=EVIL) for table in record.tables)
    bad = made_record("cce", 1000, series=EVIL, tables=tables)
    page = page_of(Collected(records=[record, bad], recipes={EVIL: EVIL}, notes=[EVIL]))
    assert "<script>alert" not in page
    assert "alert(" in page
    assert len(data_of(page)) == 2


@needs_vega
def test_data_for_the_script_is_json_without_words_for_what_is_no_number():
    records = [made_record("cce", 500, bce=float("nan"), auc=float("inf")), *made_records(("hash",))]
    (section,) = data_of(page_of(Collected(records=records)))
    assert list(section["plots"]) == [
        *("bce-training", "bce-bytes", "bce-params"),
        *("auc-training", "auc-bytes", "auc-params"),
        "bce-curves",
    ]
    assert all(spec["data"]["values"] for spec in section["plots"].values())


@needs_vega
def test_records_of_old_make_a_page():
    bare = made_record("cce", 500, tables=(), events=[], environment={}, curve=[], config={}, name="")
    page = page_of(Collected(records=[bare]))
    assert "unknown data, unknown model, 0 epochs" in page


@pytest.mark.slow
def with_more_tables(record):
    tables = [replace(table, name=f"{table.name}{index}") for index in range(5) for table in record.tables]
    return replace(record, tables=tuple(tables))


@pytest.mark.slow
@needs_vega
def test_a_page_of_hundreds_of_runs_stays_small():
    methods = ("cce", "hash", "ce-concat", "robe", "dhe", "hash-embedding", "tt", "ce-sum", "ce-mult", "collide")
    caps = [500 * 2**index for index in range(13)] + [700 * 2**index for index in range(13)]
    records = [with_more_tables(record) for record in made_records(methods, caps)]
    assert len(records) == 783
    for record in records:
        record.curve[:] = [scores | {"step": scores["step"] + index} for index in range(5) for scores in record.curve]
    assert len(records[5].curve) == 60
    assert len(page_of(Collected(records=records)).encode()) < 3_000_000


@needs_vega
def test_data_cannot_end_its_element_and_values_are_not_filled_in_twice():
    parts = dict.fromkeys(("progress", "sections", "notes", "environment", "commands"), "")
    charts = {"one": [vega.Plot("name", "title", {"value": f"</script>{EVIL}"})]}
    page = fill_page(title="{{css}}", links={}, charts=charts, **parts)
    assert "<title>{{css}}</title>" in page
    assert "alert(" in page
    assert "<script>alert" not in page


def test_options_say_what_differs_from_the_defaults_of_this_version_or_is_not_known_to_it():
    config = TrainConfig(data="/data/my clicks", method="robe", method_options={"sizes": [1, 2]}, cap=8000, seed=2)
    shown = json.loads(given_options(asdict(config)))
    given = {"data": "/data/my clicks", "method": "robe", "method_options": {"sizes": [1, 2]}, "cap": 8000, "seed": 2}
    assert shown == given
    assert make_config(shown) == config
    assert given_options({"unheard_of": 1, "unset": None}) == '{"unheard_of": 1}'
