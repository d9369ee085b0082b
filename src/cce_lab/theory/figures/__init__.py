"""The paper's figures of theory, each a function that gives plain data: `FIGURES[name](seed=…, quick=…)`."""

from cce_lab.theory.figures.least_squares import least_squares_figure
from cce_lab.theory.figures.rate_distortion import rate_distortion_figure
from cce_lab.theory.figures.table_collapse import table_collapse_figure
from cce_lab.theory.figures.theory_practice import theory_practice_figure

FIGURES = {
    "least-squares": least_squares_figure,
    "theory-practice": theory_practice_figure,
    "table-collapse": table_collapse_figure,
    "rate-distortion": rate_distortion_figure,
}

__all__ = ["FIGURES"]
