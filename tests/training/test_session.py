"""A run at one moment, saved and restored; runs as a whole are tested in test_trainer.py."""

import json
import random

import numpy as np
import pytest
import torch

from cce.data import PreparedData
from cce.distributed import Ranks, pack, unpack
from cce.training import Trainer
from cce.training.model import random_state, restore_random_state, seed_everything
from cce.training.session import Session
from helpers.runs import tiny_config, tiny_resolved


def session(data, **changes):
    return Session(tiny_resolved(data, **changes), PreparedData.open(data), ranks=Ranks())


def test_without_shuffling_rows_come_as_they_were_prepared(data):
    prepared = next(iter(PreparedData.open(data).loader("train", batch_size=64, shuffle=False)))
    ordered, shuffled = (next(iter(session(data, shuffle=each).loader)) for each in (False, True))
    assert torch.equal(ordered.ids, prepared.ids)
    assert not torch.equal(shuffled.ids, prepared.ids)


def test_it_knows_how_far_it_is(data):
    some = session(data)
    next(iter(some.loader))
    assert (some.rows_trained, some.epoch) == (64, 1)


def test_without_a_checkpoint_a_run_begins_again_and_with_one_it_says_the_same(data, tmp_path):
    first = Trainer(tiny_config(data), tmp_path / "run")
    first.close()
    second = Trainer.resume(tmp_path / "run")
    assert second.session.step == 0
    next(iter(first.session.loader))
    first.session.step = 1
    first.session.stopping.add(0.5, 1)
    first.save()
    second.close()
    third = Trainer.resume(tmp_path / "run")
    third.close()
    for name in ("step", "loader", "stopping", "curve"):
        assert third.session.state_dict()[name] == first.session.state_dict()[name], name
    states = [[phase.state_dict() for phase in each.phases[1:]] for each in (first, third)]
    assert states[0] == states[1]


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


def test_several_processes_need_dense_gradients(data):
    config = tiny_resolved(data, method_options={"sparse": True}, optimizer="sgd")
    with pytest.raises(ValueError, match=r"sparse needs a single process: .* sparse=True and 2 p"):
        Session(config, PreparedData.open(data), ranks=Ranks(rank=0, world_size=2))
