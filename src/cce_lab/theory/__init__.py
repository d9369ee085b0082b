"""The paper's theory, run: dense and sparse CCE for least squares, noise, bounds, and figures of them."""

from cce_lab.theory.figure import Claim, Figure, Series
from cce_lab.theory.figures import FIGURES
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
from cce_lab.theory.sparse import (
    SparseFactor,
    clustered_optimum,
    count_sketch,
    factorise,
    refit_cce,
    sparse_cce,
)

__all__ = [
    "FIGURES",
    "Claim",
    "Figure",
    "LeastSquares",
    "Run",
    "Series",
    "SparseFactor",
    "clustered_optimum",
    "corollary_bound",
    "count_sketch",
    "dense_cce",
    "factorise",
    "ideal_bound",
    "lies_under",
    "refit_cce",
    "rho",
    "sparse_cce",
    "steps_needed",
    "theorem_bound",
]
