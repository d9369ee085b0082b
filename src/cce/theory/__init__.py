"""The paper's theory, run: dense and sparse CCE for least squares, noise, bounds, the lemma, and figures of them."""

from cce.theory.bounds import corollary_bound, ideal_bound, lies_under, rho, steps_needed, theorem_bound
from cce.theory.dense import dense_cce
from cce.theory.factor import SparseFactor, count_sketch
from cce.theory.factorise import factorise
from cce.theory.figure import Claim, Figure, Series
from cce.theory.figures import FIGURES
from cce.theory.least_squares import LeastSquares, Run
from cce.theory.lemma import exact_ratio, simulate_ratio
from cce.theory.refit import refit_cce
from cce.theory.sparse import SparseRun, clustered_optimum, sparse_cce
from cce.theory.streamed import Examples, StreamedRun, streamed_cce

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
