"""What compiled loops know of int8 rows: records of sizes and of addresses, which Python holds.

A row is `dim` values and three bytes of state: a second moment, how often it was moved, how often its id occurred.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cce.compiled import compile_loops, memory

pointer, carray = memory.pointer, memory.carray

LEVEL, USE, COUNT, STATE_NBYTES = range(4)  # bytes of a row after its values, and how many they are
NO_ROW = 0


def _record(integers: str, floats: str = "") -> np.dtype[Any]:
    fields = [(name, np.int64) for name in integers.split()]
    return np.dtype(fields + [(name, np.float64) for name in floats.split()])


# A table. `needed`: occurrences after which an id has a row; `shares`: whether row 0 is trained
TABLE = _record(
    "num_embeddings dim key bits ranks num_mapped recent_ids recent_rows recent_size "
    "records capacity num_rows seen seen_bits needed shares steps",
    "scale bound value_squares value_count",
)
# A batch of ids: `(batch, tables)` with strides in bytes, or bags of ids at `offsets`. What is 0 is not there
BATCH = _record("ids id_stride table_stride size offsets weights out saved_ids saved_rows saved_bags")
# Gradients of the distinct ids of a table; `square` is that of their norm, of ids that a step will move, or of all
GRADIENTS = _record("ids rows occurrences sums num_ids", "square full_square")
# The optimizer's settings and state of a table; `step` and `unit` (of second moments) are addresses
RULE = _record("squares visits step unit", "lr weight_decay beta eps factor")


@compile_loops
def table_at(address: Any) -> Any:
    """The table whose record is at an address."""
    return carray(pointer(address), (1,), TABLE)[0]
