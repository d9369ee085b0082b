"""Vega's script and pictures."""

import struct

import pytest

import cce
from cce_lab.report import vega
from cce_lab.report.vega import (
    GREY,
    HUES,
    by_budget,
    layered,
    level,
    log_sizes,
    middle_budget,
    near,
    palette,
    round_numbers,
    score_tip,
    tip,
)

needs_vega = pytest.mark.skipif(not vega.can_draw(), reason="vl-convert is not installed")
SPEC = {
    "width": "container",
    "data": {"values": [{"a": 1, "b": 2}, {"a": 2, "b": 3}]},
    "mark": "line",
    "encoding": {"x": {"field": "a", "type": "quantitative"}, "y": {"field": "b", "type": "quantitative"}},
}


@pytest.mark.slow
@needs_vega
def test_the_script_is_whole_and_may_stand_in_a_page():
    script = vega.javascript()
    assert "window.vegaEmbed" in script
    assert "</script" not in script
    assert 500_000 < len(script) < 1_500_000


@pytest.mark.slow
@needs_vega
def test_pictures_of_both_kinds():
    svg = vega.picture(SPEC, title="<Title>", kind="svg")
    assert svg.startswith(b"<svg")
    assert b"&lt;Title&gt;" in svg
    png = vega.picture(SPEC, title="Title", kind="png")
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">I", png[16:20])[0] > 2 * vega.WIDTH
    assert SPEC["width"] == "container"  # the page's chart is as it was


def test_whether_it_is_installed_is_asked_each_time(monkeypatch):
    monkeypatch.setattr(vega, "find_spec", lambda name: None)
    assert not vega.can_draw()


def test_round_numbers_are_neither_many_nor_few():
    assert round_numbers(4.4, 17) == [5, 7, 10, 15]
    assert round_numbers(900, 30_000) == [1000, 2000, 5000, 10_000, 20_000]
    assert round_numbers(2464, 4e6) == [3000, 10_000, 30_000, 100_000, 300_000, 1e6, 3e6]
    assert round_numbers(1, 1e6) == [1, 10, 100, 1000, 10_000, 100_000, 1e6]
    assert round_numbers(8, 8) == []


def test_axes_without_rows_have_no_numbers():
    assert log_sizes([], ("size",), "B")["axis"]["values"] == []


@pytest.mark.parametrize("size", [1, 10, 1234, 2_690_272, 9.99e8])
def test_a_single_size_has_an_axis_with_several_numbers_around_it(size):
    axis = log_sizes([{"size": size, "low": None}], ("size", "low"), "B")
    low, high = axis["scale"]["domain"]
    assert low < size < high
    assert len(axis["axis"]["values"]) >= 2


def test_a_single_score_is_written_with_its_digits():
    assert near("mean", "BCE")["axis"]["format"] == ".4~f"


def test_the_middle_budget_is_shown_first():
    rows = [{"series": "full", "budget": "full"}] + [{"series": "cce", "budget": f"cap {n}"} for n in (1, 1, 2, 3)]
    assert middle_budget(rows) == "cap 2"
    assert middle_budget(rows[:1]) == ""
    spec = by_budget(layered(rows, {}, []))
    assert {"name": "budget", "value": "cap 2"} in spec["params"]
    assert {"name": "highlight", "value": []} in spec["params"]


def test_tooltips_write_each_kind_of_number_its_own_way():
    assert tip("params") == {"field": "size", "type": "quantitative", "format": ",.0f", "title": "params"}
    assert tip("mean")["format"] == ".5f"
    assert score_tip("score_auc", "AUC") == {
        "field": "score_auc",
        "type": "quantitative",
        "format": ".5f",
        "title": "AUC",
    }
    assert tip("step")["format"] == ","
    assert tip("series") == {"field": "series", "type": "nominal", "title": "series"}


def test_a_level_is_a_dashed_rule_with_its_name():
    rule, words = level(0.45, "full table")
    assert rule["mark"]["strokeDash"]
    assert rule["data"]["values"] == words["data"]["values"] == [{"level": 0.45, "text": "full table"}]


def test_methods_keep_their_colour_whoever_else_is_there():
    alone = palette(["cce"])
    many = palette(["hash", "full", "zzz", "cce", "aaa", "robe"])
    assert alone["cce"] == many["cce"]
    assert alone["cce"].colour == HUES[0]
    assert many["full"].colour == GREY


def test_all_methods_and_one_more_series_have_colours_of_their_own():
    names = [*cce.list_methods(), "pq fine-tuned"]
    assert len(names) == 18
    assert len({style.colour for style in palette(names).values()}) == 18


def test_beyond_the_hues_no_two_are_drawn_alike():
    styles = palette([f"series {index}" for index in range(40)] + ["full", "cce"])
    assert len(styles) == 42
    assert len({(style.colour, style.shape) for style in styles.values()}) == 42


def test_no_series():
    assert palette([]) == {}
