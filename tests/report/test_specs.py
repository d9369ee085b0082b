"""Pieces of charts."""

from cce.report.specs import by_budget, layered, level, log_sizes, middle_budget, round_numbers, tip


def test_round_numbers_are_neither_many_nor_few():
    assert round_numbers(900, 30_000) == [1000, 2000, 5000, 10_000, 20_000]
    assert round_numbers(2464, 4e6) == [3000, 10_000, 30_000, 100_000, 300_000, 1e6, 3e6]
    assert round_numbers(1, 1e6) == [1, 10, 100, 1000, 10_000, 100_000, 1e6]
    assert round_numbers(7, 7) == []


def test_axes_without_rows_have_no_numbers():
    assert log_sizes([], ("size",), "B")["axis"]["values"] == []
    assert log_sizes([{"size": 10, "low": None}], ("size", "low"), "B")["axis"]["values"] == [10]


def test_the_middle_budget_is_shown_first():
    rows = [{"series": "full", "budget": "full"}] + [{"series": "cce", "budget": f"cap {n}"} for n in (1, 1, 2, 3)]
    assert middle_budget(rows) == "cap 2"
    assert middle_budget(rows[:1]) == ""
    spec = by_budget(layered(rows, {}, []))
    assert {"name": "budget", "value": "cap 2"} in spec["params"]
    assert {"name": "highlight", "value": []} in spec["params"]


def test_tooltips_write_each_kind_of_number_its_own_way():
    assert tip("params") == {"field": "size", "type": "quantitative", "format": ",.0f", "title": "params"}
    assert tip("bce")["format"] == ".5f"
    assert tip("step")["format"] == ","
    assert tip("series") == {"field": "series", "type": "nominal", "title": "series"}


def test_a_level_is_a_dashed_rule_with_its_name():
    rule, words = level(0.45, "full table")
    assert rule["mark"]["strokeDash"]
    assert rule["data"]["values"] == words["data"]["values"] == [{"level": 0.45, "text": "full table"}]
