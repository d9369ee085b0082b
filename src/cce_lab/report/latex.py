"""Text and tables as LaTeX: special characters escaped, tables with the rules of booktabs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ESCAPES = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": "$<$",
        ">": "$>$",
        "|": "$|$",
        "×": r"$\times$",
        "±": r"$\pm$",
        "−": "$-$",
        "≥": r"$\geq$",
        "≤": r"$\leq$",
        "≈": r"$\approx$",
        "–": "--",
        "…": r"\dots{}",
        "†": r"$^\dagger$",
        "[": "{[}",  # at the start of a row it would be an option of the line break before
        "*": "{*}",  # the same
        "\n": " ",
    }
)
FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}"


def escape_latex(text: str) -> str:
    """The text as LaTeX prints it."""
    return text.translate(ESCAPES)


def latex_tabular(headers: Sequence[str], rows: Sequence[Sequence[str]], *, kinds: str) -> str:
    """A tabular of cells that are LaTeX already; `kinds` has a letter for each column, l or r."""
    lines = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", _row(headers), r"\midrule"]
    return "\n".join([*lines, *map(_row, rows), r"\bottomrule", r"\end{tabular}"])


def latex_float(kind: str, body: str, *, caption: str, label: str) -> str:
    """A `table`, shrunk to the width of the text if it is wider, or a `figure`, with caption and label."""
    words = rf"\caption{{{escape_latex(caption)}}}" + "\n" + rf"\label{{{label}}}"
    inner = f"{words}\n{FIT}{{\n{body}}}" if kind == "table" else f"{body}\n{words}"
    return f"\\begin{{{kind}}}\n\\centering\n{inner}\n\\end{{{kind}}}"


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
