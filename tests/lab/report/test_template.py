"""What pages share: rows that the script unpacks, and text that cannot leave its element."""

import json
import math

import pytest

from cce_lab.report import vega
from cce_lab.report.template import fill_page, html_list, legend, pack
from cce_lab.report.vega import Style


def unpack(packed):
    """What `unpack` of page.js does, in Python."""
    rows = [{} for _ in range(packed["count"])]
    for name, column in packed["columns"].items():
        for index, row in enumerate(rows):
            value = column["words"][column["at"][index]] if isinstance(column, dict) else column[index]
            if value is not None:
                row[name] = value
    return rows


def test_rows_come_back():
    rows = [{"series": "cce", "step": 1}, {"series": "cce", "bce": 0.5}, {"series": "hash", "step": 2, "note": "x"}]
    packed = json.loads(json.dumps(pack(rows), allow_nan=False))
    assert packed["columns"]["series"] == {"words": ["cce", "hash"], "at": [0, 0, 1]}
    assert unpack(packed) == rows


def test_what_is_not_a_number_is_nothing():
    assert unpack(pack([{"a": math.nan, "b": 1}])) == [{"b": 1}]


def test_no_rows():
    assert pack([]) == {"count": 0, "columns": {}}


@pytest.mark.slow
@pytest.mark.skipif(not vega.can_draw(), reason="without vl-convert there is no script")
def test_data_cannot_end_its_element_and_values_are_not_filled_in_twice():
    names = ("title", "progress", "is_live", "navigation", "overview", "sections", "notes", "environment", "commands")
    page = fill_page(dict.fromkeys(names, "") | {"title": "{{css}}"}, {"value": "</script><script>alert(1)</script>"})
    assert "<title>{{css}}</title>" in page
    assert "alert(1)" in page
    assert "<script>alert" not in page


def test_lists_and_legends_are_escaped_and_nothing_without_lines():
    assert html_list(["a < b"]) == "<ul><li>a &lt; b</li></ul>"
    assert html_list([]) == legend({}) == ""
    assert 'data-series="&lt;b&gt;"' in legend({"<b>": Style("#fff", "circle")})
