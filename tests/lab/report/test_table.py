"""A table as CSV, text, LaTeX, HTML and plain data."""

import csv
import io
import math

from cce_lab.report.tables import Cell, Column, Table, ratio_cell

TABLE = Table(
    "name",
    "Title",
    (Column("series", is_text=True), Column("BCE", about="a <score>")),
    ((Cell("cce"), Cell(0.451234, "0.4512", "more & more")), (Cell("<b>|x"), Cell(math.nan))),
)


def test_csv_has_every_column_and_whole_numbers():
    rows = list(csv.reader(io.StringIO(TABLE.as_csv())))
    assert rows == [["series", "BCE"], ["cce", "0.451234"], ["<b>|x", ""]]


def test_text_has_what_is_shown_in_columns():
    assert TABLE.as_text() == "series     BCE\n------  ------\ncce     0.4512\n<b>|x        –"


def test_latex_is_a_tabular_with_the_rules_of_booktabs():
    assert TABLE.as_latex().splitlines() == [
        *(r"\begin{tabular}{lr}", r"\toprule", r"series & BCE \\", r"\midrule"),
        *(r"cce & 0.4512 \\", r"$<$b$>$$|$x & -- \\", r"\bottomrule", r"\end{tabular}"),
    ]


def test_what_latex_takes_for_commands_is_escaped_once():
    odd = Table("t", "T", [Column(r"50 % of a_b & {c} \ ~ ^ $#")], [[Cell(1, "≥ 8×, −0.1 ± 0.2")], [Cell(1, "[a] *b")]])
    lines = odd.as_latex().splitlines()
    assert lines[2] == r"50 \% of a\_b \& \{c\} \textbackslash{} \textasciitilde{} \textasciicircum{} \$\# \\"
    assert lines[4:6] == [r"$\geq$ 8$\times$, $-$0.1 $\pm$ 0.2 \\", r"{[}a] {*}b \\"]


def test_html_is_escaped_and_sorts_by_values():
    html = TABLE.as_html()
    assert html.startswith('<div class="wide" tabindex="0">')  # scrolls by keyboard
    assert '<td data-value="0.451234" title="more &amp; more">0.4512</td>' in html
    assert '<td class="text" data-value="&lt;b&gt;|x">&lt;b&gt;|x</td>' in html
    assert "<td>–</td>" in html
    assert 'title="a &lt;score&gt;"' in html
    assert html.count('aria-sort="none"') == 2
    assert "<b>" not in html


def test_below_an_explained_table_stands_what_its_columns_mean():
    html = TABLE.explained()
    assert html.startswith("<h3>Title</h3>")
    assert html.endswith('<p class="quiet"><b>BCE</b>: a &lt;score&gt;.</p>')


def test_ratios():
    assert str(ratio_cell(1000, 8)) == "125×"
    assert str(ratio_cell(None, 8)) == str(ratio_cell(8, 0)) == "–"
