"""The page as text: everything is in it, nothing is fetched, nothing of a record is taken for HTML."""

import json
import re

import pytest

from cce.report import vega
from cce.report.page import make_page, progress_text
from cce.report.reading import Collected, LiveRun
from cce.report.sections import make_sections
from helpers.made_records import made_record, made_records

pytestmark = pytest.mark.skipif(not vega.can_draw(), reason="vl-convert is not installed")
EVIL = '<script>alert("x")</script>'


def page_of(found, **options):
    return make_page(found, make_sections(found), **options)


def without_vega(page):
    return page.replace(vega.javascript(), "")


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def live_run(name="hash-1", idle=3.0, failure=""):
    config = {"data": "data/clicks", "model": "dlrm", "epochs": 10, "method": "hash", "cap": 500}
    lines = [{"kind": "train", "step": 50, "loss": 0.61}, {"kind": "validation", "step": 100, "bce": 0.52, "auc": 0.7}]
    return LiveRun(name, config, lines, idle, failure=failure)


def test_every_part_is_there():
    expected = {("clicks", "dlrm", 10): {"source": "Tsang & Ahle", "full_bce": 0.45, "compression": {"cce": 8500}}}
    found = Collected(
        records=made_records(), recipes={"sweeps/a.toml": "caps = [1]"}, expected=expected, notes=["a note"]
    )
    page = without_vega(page_of(found))
    for heading in ("Compression factors", "Summary", "Training", "Memory ledger", "Commands", "Environment"):
        assert f">{heading}</h3>" in page
    for words in (
        "<h2>clicks, dlrm, 10 epochs</h2>",
        "cce reaches the full table&#x27;s BCE with",
        "Expected: Tsang &amp; Ahle. Full table there: BCE 0.4500, here 0.4519.",
        "cce sweep sweeps/a.toml",
        "cce train data/clicks --method cce --cap 500 --epochs 10 --seed 1",
        "123 commands of single runs",
        "<li>a note</li>",
        "0123456789ab",
        "123 runs",
    ):
        assert words in page, words
    assert page.count("<figure") == 9
    assert "Not finished" not in page
    assert "{{" not in page


def test_nothing_is_fetched():
    page = page_of(Collected(records=made_records()))
    own = without_vega(page)
    assert "http://" not in own
    assert "https://" not in own
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)""", own)
    assert page.count("window.vegaEmbed =") + page.count("window.vegaEmbed=") == 1  # one script for all charts


def test_nothing_of_a_record_is_taken_for_html():
    record = made_record("cce", 500, series=EVIL, name=EVIL, environment={EVIL: EVIL})
    record.config.update(data=f"data/{EVIL}", model=EVIL)
    tables = [table | {"name": EVIL, "method": EVIL} for table in record.tables]
    bad = made_record("cce", 1000, series=EVIL, tables=tables)
    page = page_of(
        Collected(records=[record, bad], live=[live_run(EVIL, failure=EVIL)], recipes={EVIL: EVIL}, notes=[EVIL])
    )
    assert "<script>alert" not in page
    assert "alert(" in page
    assert len(data_of(page)["sections"]) == 2


def test_data_for_the_script_is_json_without_words_for_what_is_no_number():
    records = [made_record("cce", 500, bce=float("nan"), auc=float("inf")), *made_records(("hash",))]
    records[0].tables[0]["num_params"] = None
    (section,) = data_of(page_of(Collected(records=records)))["sections"]
    assert list(section["plots"]) == [
        "factors",
        "bce-params",
        "bce-bytes",
        "auc-params",
        "auc-bytes",
        "curves",
        "churn",
        "h1",
        "h2",
    ]
    assert section["ledger"][0]["label"] == "full"
    assert section["plots"]["curves"]["budgets"] is True


def test_records_of_old_make_a_page():
    bare = made_record("cce", 500, tables=[], events=[], environment={}, curve=[], config={}, name="")
    page = page_of(Collected(records=[bare]))
    assert "unknown data, unknown model, 0 epochs" in page
    assert "Memory ledger" not in without_vega(page)


@pytest.mark.slow
def test_a_page_of_hundreds_of_runs_stays_small():
    methods = ("cce", "hash", "ce-concat", "robe", "dhe", "hash-embedding", "tt", "ce-sum", "ce-mult", "collide")
    caps = [500 * 2**place for place in range(13)] + [700 * 2**place for place in range(13)]
    records = made_records(methods, caps)
    assert len(records) == 783
    for record in records:
        record.curve[:] = [scores | {"step": scores["step"] + place} for place in range(5) for scores in record.curve]
        record.tables[:] = [
            table | {"name": f"{table['name']}{place}"} for place in range(5) for table in record.tables
        ]
    assert len(records[5].curve) == 60
    assert len(page_of(Collected(records=records)).encode()) < 3_000_000


def test_several_groups_have_a_navigation():
    other = made_record("cce", 500)
    other.config["epochs"] = 1
    page = page_of(Collected(records=[made_record("cce", 500, 1), other]))
    assert '<a href="#clicks-dlrm-1-epoch">clicks, dlrm, 1 epoch</a>' in page
    assert "<nav>" not in page_of(Collected(records=[other]))


def test_runs_under_way_are_listed_and_the_page_loads_itself_again():
    found = Collected(records=made_records(("cce",)), live=[live_run(), live_run("b", failure="OSError: full")])
    page = page_of(found, reload_seconds=7.5)
    assert data_of(page)["reload"] == 7.5
    assert 'class="progress live"' in page
    for words in ("hash-1", "0.6100", "0.5200", "under way", "OSError: full"):
        assert words in page
    assert data_of(page_of(found))["reload"] is None


def test_progress_in_words():
    records = made_records(("cce",))
    assert progress_text(Collected(records=records)) == "27 runs"
    assert progress_text(Collected(records=records[:1])) == "1 run"
    assert progress_text(Collected(records=records, live=[live_run()])) == "27 of 28 runs finished, 1 under way"
    mixed = [live_run(), live_run(idle=1e5), live_run(failure="x")]
    text = progress_text(Collected(records=records, live=mixed, num_planned=40))
    assert text == "27 of up to 40 runs finished, 1 under way, 1 silent, 1 failed"
