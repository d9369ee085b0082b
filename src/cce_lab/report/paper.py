"""A report as one document for a paper, in LaTeX or Markdown: scores, compression factors, what seeds say, figures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cce_lab.report.factors import deviation
from cce_lab.report.groups import FULL
from cce_lab.report.significance import meaning
from cce_lab.report.table import Cell, Column, Table, escape_latex, latex_float

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cce_lab.report.groups import Budget, Group
    from cce_lab.report.sections import Section

PREAMBLE = (
    "% \\usepackage{booktabs} and \\usepackage{graphicx}; the folder of this file is where figures are searched.\n"
)
EXTRAPOLATED, DAGGER = " (extrapolated)", "†"


@dataclass(frozen=True)
class Format:
    """What a kind of report writes."""

    document: str  # the file that holds the rest together
    tables: tuple[str, ...]
    figures: tuple[str, ...]


FORMATS = {
    "html": Format("index.html", ("csv", "md"), ("svg", "png")),
    "latex": Format("report.tex", ("csv", "tex"), ("pdf",)),
    "markdown": Format("report.md", ("csv", "md"), ("svg", "png")),
}


def scores_table(group: Group) -> Table:
    """A line for each series, a column for each budget: the leading score, mean ± standard deviation; the best bold."""
    labels = list(dict.fromkeys(b.label for b in sorted(group.budgets, key=lambda b: b.size("params") or 0)))
    best = {label: min(map(group.mean_loss, _at(group, label))) for label in labels}
    rows = []
    for name, budgets in group.series.items():
        mine = {budget.label: budget for budget in budgets}
        cells = (_score(group, mine[label], best[label]) if label in mine else Cell(None) for label in labels)
        rows.append([Cell(name), *cells])
    columns = [Column("series", is_text=True), *map(Column, labels)]
    return Table(f"{group.slug}-scores", f"{group.leading.title} on test rows", columns, rows)


def _at(group: Group, label: str) -> list[Budget]:
    return [budget for budget in group.budgets if budget.label == label]


def _score(group: Group, budget: Budget, best: float) -> Cell:
    found = budget.over_seeds(group.leading.name)
    if found is None:
        return Cell(None)
    scatter = deviation(budget.by_seed(group.leading.name).values())
    text = f"{found.mean:.4f}" if scatter is None else f"{found.mean:.4f} ± {scatter:.4f}"
    is_best = budget.label != FULL and group.mean_loss(budget) == best
    return Cell(found.mean, text, is_best=is_best)


def short_factors(section: Section) -> Table:
    """The compression factors without ranges and notes; what is extrapolated has a dagger."""
    found = section.factors.only(("series", "fewer training bytes", "fewer served bytes", "fewer params", "how"))
    rows = [[_short(column, cell) for column, cell in zip(found.columns, row, strict=True)] for row in found.rows]
    return replace(found, rows=rows)


def _short(column: Column, cell: Cell) -> Cell:
    if column.name == "how":
        return replace(cell, text=str(cell).partition(";")[0])
    return cell if column.is_text else replace(cell, text=str(cell).replace(EXTRAPOLATED, DAGGER))


def factors_caption(section: Section) -> str:
    """What a table of factors shows."""
    return f"Compression factors, {section.group.title}; {DAGGER} extrapolated."


def caption(section: Section) -> str:
    """What a table of scores shows."""
    counts = sorted({len(budget.records) for budget in section.group.budgets})
    seeds = f"{'–'.join(map(str, counts[:1] + counts[1:][-1:]))} seed{'' if counts == [1] else 's'}"
    better = f"{section.group.leading.better} is better"
    return f"{section.group.leading.title} on the test rows of {section.group.title}; {seeds}, {better}."


def as_markdown(sections: Sequence[Section], pictures: Sequence[str]) -> str:
    """The document in Markdown; `pictures` are paths beside it."""
    parts = []
    for section in sections:
        parts += [f"## {section.group.title}", section.headline, section.caution]
        parts += [f"{caption(section)}\n\n{scores_table(section.group).as_markdown()}".rstrip()]
        if section.factors.rows:
            parts += [f"{factors_caption(section)}\n\n{short_factors(section).as_markdown()}".rstrip()]
        parts += ["\n".join(f"- {each}" for each in section.comparisons), meaning(section.comparisons)]
        parts += [f"![{name}]({name})" for name in pictures if _is_of(section, name)]
    return "\n\n".join(part for part in parts if part) + "\n"


def as_latex(sections: Sequence[Section], pictures: Sequence[str]) -> str:
    """The same in LaTeX, to be included in a paper."""
    parts = [PREAMBLE]
    for section in sections:
        scores, factors, slug = scores_table(section.group), short_factors(section), section.group.slug
        parts += [rf"\subsection*{{{escape_latex(section.group.title)}}}", *_paragraphs(section)]
        parts.append(
            latex_float("table", scores.as_latex().rstrip(), caption=caption(section), label=f"tab:{slug}-scores")
        )
        if factors.rows:
            body, about = factors.as_latex().rstrip(), factors_caption(section)
            parts.append(latex_float("table", body, caption=about, label=f"tab:{slug}-factors"))
        parts += [_figure(name, section) for name in pictures if _is_of(section, name)]
    return "\n\n".join(parts) + "\n"


def _paragraphs(section: Section) -> list[str]:
    sentences = [section.headline, section.caution, *map(str, section.comparisons), meaning(section.comparisons)]
    return [escape_latex(sentence) for sentence in sentences if sentence]


def _figure(path: str, section: Section) -> str:
    name = path.rpartition("/")[2].rpartition(".")[0]
    titles = {f"{section.group.slug}-{plot.name}": plot.title for plot in section.plots}
    body = rf"\includegraphics[width=\linewidth]{{{path}}}"
    return latex_float("figure", body, caption=f"{titles[name]}, {section.group.title}.", label=f"fig:{name}")


def _is_of(section: Section, path: str) -> bool:
    names = {f"{section.group.slug}-{plot.name}" for plot in section.plots}
    return path.rpartition("/")[2].rpartition(".")[0] in names
