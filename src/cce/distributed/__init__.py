"""Several processes that train one model: who they are, what they send each other, who does what."""

from cce.distributed.owners import share_out
from cce.distributed.ranks import Ranks, joined
from cce.distributed.sending import broadcast, check_same, gather_rows, sum_over_ranks

__all__ = ["Ranks", "broadcast", "check_same", "gather_rows", "joined", "share_out", "sum_over_ranks"]
