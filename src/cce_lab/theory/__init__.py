"""The paper's theory, run: dense and sparse CCE for least squares, noise, bounds, the lemma, and figures of them."""

from cce_lab.theory.bounds import corollary_bound, ideal_bound, lies_under, rho, steps_needed, theorem_bound
from cce_lab.theory.dense import dense_cce
from cce_lab.theory.factor import SparseFactor, count_sketch
from cce_lab.theory.factorise import factorise
from cce_lab.theory.figure import Claim, Figure, Series
from cce_lab.theory.figures import FIGURES
from cce_lab.theory.least_squares import LeastSquares, Run
from cce_lab.theory.lemma import exact_ratio, simulate_ratio
from cce_lab.theory.refit import refit_cce
from cce_lab.theory.sparse import SparseRun, clustered_optimum, sparse_cce
from cce_lab.theory.streamed import Examples, StreamedRun, streamed_cce

__all__ = [
    "FIGURES",
    "Claim",
    "Examples",
    "Figure",
    "LeastSquares",
    "Run",
    "Series",
    "SparseFactor",
    "SparseRun",
    "StreamedRun",
    "clustered_optimum",
    "corollary_bound",
    "count_sketch",
    "dense_cce",
    "exact_ratio",
    "factorise",
    "ideal_bound",
    "lies_under",
    "refit_cce",
    "rho",
    "simulate_ratio",
    "sparse_cce",
    "steps_needed",
    "streamed_cce",
    "theorem_bound",
]
