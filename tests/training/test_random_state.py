"""All random numbers go on where they were."""

import json
import random

import numpy as np
import torch

from cce.distributed.packing import pack, unpack
from cce.training.random_state import random_state, restore_random_state, seed_everything


def draw():
    return torch.rand(3).tolist(), random.random(), random.gauss(), np.random.rand(3).tolist(), np.random.randn()  # noqa: NPY002


def test_numbers_after_a_restored_state_are_the_same():
    before = random_state()
    try:
        seed_everything(3)
        draw()
        tensors = {}
        plain = json.loads(json.dumps(pack(random_state(), tensors)))
        expected = draw()
        seed_everything(4)
        assert draw() != expected
        restore_random_state(unpack(plain, tensors))
        assert draw() == expected
    finally:
        restore_random_state(before)


def test_a_seed_fixes_all_of_them():
    before = random_state()
    try:
        seed_everything(2**40 + 1)
        expected = draw()
        seed_everything(2**40 + 1)
        assert draw() == expected
    finally:
        restore_random_state(before)
