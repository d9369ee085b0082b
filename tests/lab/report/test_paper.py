"""A report as one document for a paper."""

import shutil
import subprocess

import pytest

from cce_lab.report.paper import FORMATS, as_latex, as_markdown, scores_table, short_factors
from cce_lab.report.reading import Collected
from cce_lab.report.sections import make_sections
from cce_lab.report.writing import write_report
from cce_lab.verbs import report as report_verb
from helpers.made_records import made_record


@pytest.fixture
def sections():
    scores = {("full", None): (0.450, 0.452), ("cce", 500): (0.449, 0.450), ("hash", 500): (0.47, 0.48)}
    records = [
        made_record(name, cap, seed, bce=bce) for (name, cap), found in scores.items() for seed, bce in enumerate(found)
    ]
    records.append(made_record("hash", 2000, 0, bce=0.46))
    return make_sections(Collected(records=records))


def test_the_table_of_scores_by_hand(sections):
    table = scores_table(sections[0].group)
    assert table.as_markdown().splitlines() == [
        "| series | cap 500 | cap 2,000 | full |",
        "| :-- | --: | --: | --: |",
        "| full | – | – | 0.4510 ± 0.0014 |",
        "| cce | **0.4495 ± 0.0007** | – | – |",
        "| hash | 0.4750 ± 0.0071 | **0.4600** | – |",
    ]


def test_factors_of_papers_are_short(sections):
    (of_hash,) = (row for row in short_factors(sections[0]).rows if row[0].value == "hash")
    assert [str(cell) for cell in of_hash[1:]] == ["≤ 210×†", "≤ 210×†", "≤ 210×†", "extrapolated"]
    about = f"Compression factors, {sections[0].group.title}; † extrapolated."
    assert f"{about}\n\n| series | fewer" in as_markdown(sections, [])
    assert r"hash & $\leq$ 210$\times$$^\dagger$ &" in as_latex(sections, [])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_pdflatex_takes_it_whatever_names_say(tmp_path):
    names = ("[a]", "*b", "c_d & 5 % #1 {e} \\f ~ ^ $g$ | <h>", "a very long name " * 12)
    records = [made_record(name, 500, 0, bce=0.46) for name in names] + [made_record("full", None, 0, bce=0.45)]
    write_report(Collected(records=records), tmp_path, form="latex", figures=False)
    lines = [r"\documentclass{article}\usepackage{booktabs}\usepackage{graphicx}\begin{document}", r"\input{report}"]
    lines += [rf"\input{{{path.relative_to(tmp_path)}}}" for path in sorted(tmp_path.rglob("*.tex"))]
    (tmp_path / "whole.tex").write_text("\n\n".join([*lines, r"\end{document}"]), "utf-8")
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "whole.tex"]
    found = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0, found.stdout[-2000:]


def test_latex_has_tables_sentences_and_figures_and_balances(sections):
    picture = f"figures/{sections[0].group.slug}-bce-bytes.pdf"
    text = as_latex(sections, [picture, "figures/of-another-group.pdf"])
    assert r"cce & \textbf{0.4495 $\pm$ 0.0007} & -- & -- \\" in text
    assert r"cce (cap 500) is better than full in 2 of 2 seeds, mean difference 0.0015 $\pm$ 0.0007" in text
    assert rf"\includegraphics[width=\linewidth]{{{picture}}}" in text
    assert "of-another-group" not in text
    assert "1--2 seeds, lower is better" in text
    assert text.count(r"\begin{") == text.count(r"\end{") == 5
    assert text.count("{") == text.count("}")
    assert all(ord(character) < 128 for character in text)


def test_markdown_says_the_same(sections):
    text = as_markdown(sections, [f"figures/{sections[0].group.slug}-bce-bytes.svg"])
    assert text.startswith(f"## {sections[0].group.title}\n\n{sections[0].headline}\n")
    assert "- cce (cap 500) is better than full in 2 of 2 seeds" in text
    assert "2 seeds are few" in text
    assert f"bce-bytes.svg](figures/{sections[0].group.slug}-bce-bytes.svg)" in text


def test_the_shell_offers_exactly_these_formats():
    assert set(report_verb.FORMATS) == set(FORMATS)
