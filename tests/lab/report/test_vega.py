"""Vega's script and pictures."""

import pytest

import cce
from cce_lab.report import vega
from cce_lab.report.vega import GREY, HUES, log_sizes, palette, round_numbers

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
    assert vega.picture(SPEC, title="Title", kind="pdf").startswith(b"%PDF")
    assert SPEC["width"] == "container"  # the page's chart is as it was


def test_round_numbers_are_neither_many_nor_few():
    assert round_numbers(4.4, 17) == [5, 7, 10, 15]
    assert round_numbers(900, 30_000) == [1000, 2000, 5000, 10_000, 20_000]
    assert round_numbers(2464, 4e6) == [3000, 10_000, 30_000, 100_000, 300_000, 1e6, 3e6]
    assert round_numbers(1, 1e6) == [1, 10, 100, 1000, 10_000, 100_000, 1e6]
    assert round_numbers(8, 8) == []


@pytest.mark.parametrize("size", [1, 10, 1234, 2_690_272, 9.99e8])
def test_a_single_size_has_an_axis_with_several_numbers_around_it(size):
    axis = log_sizes([{"size": size}], "B")
    low, high = axis["scale"]["domain"]
    assert low < size < high
    assert len(axis["axis"]["values"]) >= 2


def test_methods_keep_their_colour_whoever_else_is_there():
    alone = palette(["cce"])
    many = palette(["hash", "full", "zzz", "cce", "aaa", "robe"])
    assert alone["cce"] == many["cce"]
    assert alone["cce"].colour == HUES[0]
    assert many["full"].colour == GREY


def test_all_methods_and_one_more_series_have_colours_of_their_own():
    names = [*cce.embeddings.list_methods(), "pq fine-tuned"]
    assert len(names) == 17
    assert len({style.colour for style in palette(names).values()}) == 17
