"""Rows as columns, and back as the page's script does it."""

import json
import math

from cce.report.packing import pack


def unpack(packed):
    """What `unpack` of page.js does, in Python."""
    rows = [{} for _ in range(packed["count"])]
    for name, column in packed["columns"].items():
        for place, row in enumerate(rows):
            value = column["words"][column["at"][place]] if isinstance(column, dict) else column[place]
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
