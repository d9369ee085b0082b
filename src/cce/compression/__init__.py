"""Any torch model → the same model with smaller tables: `compress` before training, `finalize` and `refit` after it."""

from cce.compression.compact import Finalized, FinalizedTable, finalize
from cce.compression.refitting import RefitRound, Refitted, refit
from cce.compression.sizes import Option, Shape, allocate, least_nbytes, shapes_within
from cce.compression.swap_tables import compress
