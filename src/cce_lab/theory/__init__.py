"""The paper's theory, run: dense and sparse CCE for least squares, noise, bounds, and figures of them."""

from cce_lab.theory.figure import Claim, Figure, Series
from cce_lab.theory.figures.least_squares import least_squares_figure
from cce_lab.theory.figures.rate_distortion import rate_distortion_figure
from cce_lab.theory.figures.theory_practice import theory_practice_figure
from cce_lab.theory.least_squares import (
    LeastSquares,
    Run,
    corollary_bound,
    dense_cce,
    ideal_bound,
    lies_under,
    rho,
    steps_needed,
    theorem_bound,
)
from cce_lab.theory.sparse import SparseFactor, clustered_optimum, count_sketch, factorise, refit_cce, sparse_cce

FIGURES = {  # each gives plain data: `FIGURES[name](seed=…, quick=…)`
    "least-squares": least_squares_figure,
    "theory-practice": theory_practice_figure,
    "rate-distortion": rate_distortion_figure,
}
