"""What a run says of its losses."""

import torch

from cce.theory import Run


def test_losses_are_excesses_above_the_floor():
    run = Run(torch.zeros(2, 1), (3.0, 1.0, 0.0), 5.0)
    assert run.losses == (8.0, 6.0, 5.0)
