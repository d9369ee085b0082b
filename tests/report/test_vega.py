"""Vega's script and pictures."""

import struct

import pytest

from cce.report import vega

needs_vega = pytest.mark.skipif(not vega.can_draw(), reason="vl-convert is not installed")
SPEC = {
    "width": "container",
    "data": {"values": [{"a": 1, "b": 2}, {"a": 2, "b": 3}]},
    "mark": "line",
    "encoding": {"x": {"field": "a", "type": "quantitative"}, "y": {"field": "b", "type": "quantitative"}},
}


@needs_vega
def test_the_script_is_whole_and_may_stand_in_a_page():
    script = vega.javascript()
    assert "window.vegaEmbed" in script
    assert "</script" not in script
    assert 500_000 < len(script) < 1_500_000


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
