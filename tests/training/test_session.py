"""A run at one moment, saved and restored; runs as a whole are tested in test_trainer.py."""

import json
import random

import numpy as np
import pytest
import torch

from cce.data import PreparedData
from cce.distributed import Ranks, pack, unpack
from cce.run_folder import RunFolder
from cce.training.building import seed_everything
from cce.training.random_numbers import random_state, restore_random_state
from cce.training.session import Session, fingerprint
from helpers.runs import tiny_config


def session(data, **changes):
    return Session(tiny_config(data, **changes), PreparedData.open(data), ranks=Ranks())


def test_batches_are_cut_into_pieces_and_know_their_rows(data):
    some = session(data, batch_size=300, accumulate=3)
    batches = [([len(piece) for piece in pieces], rows) for pieces, rows in some.batches()]
    assert batches == [([100, 100, 100], 300), ([100, 100, 100], 300), ([100, 100], 200)]
    assert some.loader.epoch == 1


def test_without_shuffling_rows_come_as_they_were_prepared(data):
    prepared = next(iter(PreparedData.open(data).loader("train", batch_size=64, shuffle=False)))
    (ordered,), _ = next(session(data, shuffle=False).batches())
    (shuffled,), _ = next(session(data).batches())
    assert torch.equal(ordered.ids, prepared.ids)
    assert not torch.equal(shuffled.ids, prepared.ids)


def test_it_knows_how_far_it_is(data):
    some = session(data, max_steps=5)
    assert (some.steps_per_epoch, some.total_steps) == (13, 5)
    next(some.batches())
    assert some.rows_trained == 64
    assert not some.is_done
    some.step = 5
    assert some.is_done


def test_without_a_checkpoint_a_run_begins_anew(data, tmp_path):
    found, damage = Session.restore(tiny_config(data), PreparedData.open(data), RunFolder(tmp_path), ranks=Ranks())
    assert (found.step, damage) == (0, [])


def test_a_restored_session_says_the_same(data, tmp_path):
    first = session(data)
    next(first.batches())
    first.step = 1
    first.stopping.add(0.5, 1)
    first.save(RunFolder(tmp_path))
    second, _ = Session.restore(tiny_config(data), PreparedData.open(data), RunFolder(tmp_path), ranks=Ranks())
    for name in ("step", "loader", "stopping", "curve", "loss", "schema", "config", "data"):
        assert second.state_dict()[name] == first.state_dict()[name], name


def test_a_data_set_has_a_fingerprint(data):
    assert fingerprint(PreparedData.open(data)) == fingerprint(PreparedData.open(data))


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


def test_several_processes_need_dense_gradients(data):
    config = tiny_config(data, sparse=True, optimizer="sgd")
    with pytest.raises(ValueError, match=r"sparse must be False with several processes, .* sparse=True and 2 p"):
        Session(config, PreparedData.open(data), ranks=Ranks(rank=0, world_size=2))
