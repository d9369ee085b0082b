"""A generator, a seed, or torch's global state: never two of them, and nothing else."""

import re

import numpy as np
import pytest
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


@pytest.mark.parametrize(
    ("seed", "generator", "message"),
    [
        (-1, None, "seed must lie in [0, 2**64), got -1."),
        (2**64, None, f"seed must lie in [0, 2**64), got {2**64}."),
        (0.5, None, "seed must be an int, got 0.5 of type float."),
        (None, 3, "generator must be a torch.Generator, got 3 of type int."),
        (3, torch.Generator(), "give one of seed and generator, got seed=3 and a generator."),
    ],
)
def test_others_are_rejected(seed, generator, message):
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        make_generator(seed, generator)
