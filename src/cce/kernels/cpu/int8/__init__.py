"""int8 rows in compiled loops: look ids up, sum their gradients, move the rows; all tables of a model in one call.

`embeddings.row_lookup` and `optim.row_step` have the definition in plain torch; these loops give the same bits.
"""

from cce.kernels.cpu.int8.gradients import sum_gradients
from cce.kernels.cpu.int8.lookup import look_up
from cce.kernels.cpu.int8.step import ADMIT, MOVE, WHOLE, find_full, is_crowded, is_due, rescale, start_rows, step
from cce.kernels.cpu.int8.tables import (
    BATCH,
    COUNT_VALUES,
    DEPTH,
    GRADIENTS,
    GROUPS,
    LARGEST,
    LEVEL_VALUES,
    NUM_GROUPS,
    OFFSET,
    RULE,
    SHIFT,
    STATE_NBYTES,
    TABLE,
    find_rows,
    insert_recent,
    merge,
)
