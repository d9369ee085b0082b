"""Text and tables as LaTeX."""

from cce_lab.report.table import escape_latex, latex_float, latex_tabular


def test_special_characters_are_escaped_once():
    assert escape_latex(r"50 % of a_b & {c} \ ~ ^ $#") == (
        r"50 \% of a\_b \& \{c\} \textbackslash{} \textasciitilde{} \textasciicircum{} \$\#"
    )
    assert escape_latex("≥ 8×, −0.1 ± 0.2 – <3") == r"$\geq$ 8$\times$, $-$0.1 $\pm$ 0.2 -- $<$3"
    assert escape_latex("[a] *b 2×†") == r"{[}a] {*}b 2$\times$$^\dagger$"


def test_a_tabular_has_the_rules_of_booktabs():
    text = latex_tabular(["a", "b"], [["x", "1"], ["y", "2"]], kinds="lr")
    assert text.splitlines() == [
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"a & b \\",
        r"\midrule",
        r"x & 1 \\",
        r"y & 2 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_captions_stand_above_tables_and_below_figures():
    table = latex_float("table", "BODY", caption="5 %", label="tab:x")
    assert table.index(r"\caption{5 \%}") < table.index("BODY")
    assert "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{\nBODY}\n" in table
    figure = latex_float("figure", "BODY", caption="c", label="fig:x")
    assert "resizebox" not in figure
    assert figure.index("BODY") < figure.index(r"\label{fig:x}")
