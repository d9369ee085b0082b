"""A generator, a seed, or torch's global state: never two of them, and nothing else."""

import numpy as np
import torch

from cce.indexing import check_generator, make_generator


def test_a_seed_gives_a_generator_of_its_own():
    drawn = torch.rand(3, generator=make_generator(5))
    assert torch.equal(drawn, torch.rand(3, generator=torch.Generator().manual_seed(5)))
    assert torch.equal(drawn, torch.rand(3, generator=make_generator(np.int64(5))))
    assert make_generator(2**64 - 1) is not None


def test_a_generator_is_kept_and_nothing_is_nothing():
    given = torch.Generator()
    assert make_generator(None, given) is given
    assert make_generator(None) is None
    check_generator(None)
