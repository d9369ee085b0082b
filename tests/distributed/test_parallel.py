"""A model of one process is itself; those of several are tested in tests/distributed/test_ranks.py."""

import torch
from torch import nn

from cce.distributed.ranks import NO_BUFFERS, ParallelModel, Ranks


def test_alone_nothing_is_wrapped():
    model = nn.Linear(2, 1)
    parallel = ParallelModel(model, Ranks())
    assert torch.equal(parallel(torch.ones(1, 2)), model(torch.ones(1, 2)))
    parallel.refresh()
    parallel.close()


def test_buffers_are_not_sent_at_every_step():
    assert list(NO_BUFFERS.values()) == [False]
