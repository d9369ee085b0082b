"""Tables line up, and numbers read as a person would write them."""

import pytest

from cce import text
from cce.text import format_bytes, format_ratio, format_table, install_hint

HEADERS = ("table", "params", "bytes")
ROWS = [("user", 1_000, "4.0 kB"), ("a long name", 7, "28 B")]


def test_a_table_sets_names_left_and_numbers_right():
    assert format_table(HEADERS, ROWS).splitlines() == [
        "table        params   bytes",
        "-----------  ------  ------",
        "user           1000  4.0 kB",
        "a long name       7    28 B",
    ]


def test_num_left_says_how_many_columns_are_set_left():
    assert format_table(("a", "method", "n"), [("x", "cce", 100)], num_left=2).splitlines() == [
        "a  method    n",
        "-  ------  ---",
        "x  cce     100",
    ]


def test_no_line_of_a_table_ends_in_spaces():
    lines = format_table(("name", "note"), [("x", ""), ("y", "long note")], num_left=2).splitlines()
    assert lines[2:] == ["x", "y     long note"]


def test_a_table_without_rows_is_its_headers():
    assert format_table(HEADERS, []) == "table  params  bytes\n-----  ------  -----"


def test_rows_may_come_from_a_generator():
    assert format_table(HEADERS, (row for row in ROWS)) == format_table(HEADERS, ROWS)


def test_a_row_with_a_cell_too_few_is_rejected():
    with pytest.raises(ValueError, match="shorter"):
        format_table(HEADERS, [("user", 1)])


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (1_536, "1.5 kB"),
        (999_900, "999.9 kB"),
        (1_000_000, "1.0 MB"),
        (64_000_000, "64.0 MB"),
        (2_500_000_000, "2.5 GB"),
        (10**12, "1.0 TB"),
        (12_345 * 10**12, "12345.0 TB"),
    ],
)
def test_bytes_are_told_in_powers_of_ten(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(("count", "text"), [(999_960, "1.0 MB"), (999_999_999, "1.0 GB")])
def test_bytes_just_below_a_unit_round_up_into_it(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(1, "1.0×"), (0.25, "0.2×"), (9.66, "9.7×"), (99.9, "99.9×"), (100, "100×"), (123.4, "123×"), (8500, "8,500×")],
)
def test_ratios_have_a_decimal_below_one_hundred_and_commas_above_a_thousand(ratio, text):
    assert format_ratio(ratio) == text


def test_a_ratio_that_rounds_to_one_hundred_reads_like_one_hundred():
    assert format_ratio(99.96) == format_ratio(100)


def test_an_extra_is_installed_from_the_checkout_or_else_from_the_index(monkeypatch, tmp_path):
    assert install_hint("data") == f"pip install --editable '{text.CHECKOUT}[data]'"
    monkeypatch.setattr(text, "CHECKOUT", tmp_path)
    assert install_hint("data") == "pip install 'clustered-embeddings[data]'"
