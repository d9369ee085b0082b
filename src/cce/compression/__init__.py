"""Any torch model → the same model with smaller tables: `compress` before training, `finalize` and `refit` after it."""

from cce.compression.compact import Finalized, FinalizedTable, finalize
from cce.compression.refitting import RefitRound, Refitted, refit
from cce.compression.sizes import Option, Shape, allocate, least_nbytes, shapes_within
from cce.compression.swap_tables import compress

__all__ = [
    "Finalized",
    "FinalizedTable",
    "Option",
    "RefitRound",
    "Refitted",
    "Shape",
    "allocate",
    "compress",
    "finalize",
    "least_nbytes",
    "refit",
    "shapes_within",
]
