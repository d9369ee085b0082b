"""Sections: all that is told about a group."""

import json

from cce.report.reading import Collected, LiveRun
from cce.report.sections import make_sections
from helpers.made_records import made_record, made_records


def test_a_section_for_each_group_with_the_same_colours():
    other = made_record("cce", 500, bce=0.3)
    other.config["data"] = "data/books"
    books, clicks = make_sections(Collected(records=[*made_records(), other]))
    assert (books.group.key[0], clicks.group.key[0]) == ("books", "clicks")
    assert books.styles == clicks.styles
    assert [table.name for table in clicks.tables] == [
        f"clicks-dlrm-10-epochs-{name}" for name in ("summary", "factors", "ledger")
    ]
    assert books.headline.startswith("No full table among these runs")


def test_what_is_expected_goes_to_its_group():
    expected = {("clicks", "dlrm", 10): {"compression": {"cce": 77}}}
    (section,) = make_sections(Collected(records=made_records(("cce",)), expected=expected))
    assert section.factors.as_dicts()[0]["expected"] == 77


def test_runs_under_way_alone_make_a_section():
    run = LiveRun("x", {"data": "d", "method": "robe"}, [{"kind": "validation", "step": 5, "bce": 0.5}], 1.0)
    (section,) = make_sections(Collected(live=[run]))
    assert [plot.name for plot in section.plots] == ["curves"]
    assert section.headline == "No run is finished yet; 1 under way."


def test_plain_data_is_json():
    records = [made_record("cce", 500, bce=float("nan")), *made_records(("hash",))]
    (section,) = make_sections(Collected(records=records))
    told = json.loads(json.dumps(section.to_dict(), allow_nan=False))
    assert (told["data"], told["model"], told["epochs"]) == ("clicks", "dlrm", 10)
    assert {row["series"] for row in told["factors"]} == {"cce", "hash"}
    assert len(told["summary"]) == 1 + 1 + 8
