"""Several processes that train one model: who they are, what they send each other, who does what."""

from cce.distributed.collectives import (
    broadcast,
    check_same,
    exchange_rows,
    gather_rows,
    is_lost_peer,
    pack,
    sum_over_ranks,
    unpack,
)
from cce.distributed.ranks import ParallelModel, Ranks, current_ranks, init_distributed, partition_work
