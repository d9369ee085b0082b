"""Checkpoints of sharded tables, written by two real processes and read by one, two and three."""

import json

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException

import cce
from helpers import sharding_ranks as ranks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder beside which others are: of two ranks, which have written a checkpoint."""
    out = tmp_path_factory.mktemp("checkpoints") / "two"
    out.mkdir()
    said = ranks.start(out, 2, "saves_a_checkpoint")
    assert [(out / f"saves_a_checkpoint-{rank}.txt").read_text() for rank in range(2)] == ["", ""], said
    return out


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3])
def test_any_number_of_ranks_goes_on_as_one_process_would(folder, size):
    out = folder.with_name(f"{size} ranks")
    out.mkdir()
    said = ranks.start(out, size, "loads_the_checkpoint_of_two")
    for rank in range(size):
        assert not (out / f"loads_the_checkpoint_of_two-{rank}.txt").read_text(), said
        loss, admitted, final_loss = json.loads((out / f"loaded-{rank}.json").read_text())
        assert admitted == [30, 30]
        assert loss == pytest.approx(alone()[0], abs=1e-4)
        assert final_loss == pytest.approx(alone()[1], abs=1e-3)


def alone(found=[]):  # noqa: B006  # what is computed once
    """The losses of one process that was never stopped: after 30 steps, and finalized after 20."""
    if not found:
        model = ranks.Clicks(shard=False)
        optimizer = ranks.train(model)
        ranks.train(model, num_steps=10, first=20, optimizer=optimizer)
        found.append(ranks.loss_of(model))
        model, _ = ranks.trained(shard=False)
        cce.finalize(model, num_columns=2, num_rows=8, seed=0)
        found.append(ranks.loss_of(model))
    return found


def test_a_process_alone_saves_and_loads(tmp_path):
    model = ranks.Clicks(shard=False)
    optimizer = ranks.train(model, num_steps=2)
    cce.save_checkpoint(tmp_path / "one", model, optimizer, epoch=3)
    other = ranks.Clicks(shard=False, seed=1)
    loaded = cce.optim.Adam(other, lr=0.5)
    assert cce.load_checkpoint(tmp_path / "one", other, loaded) == {"epoch": 3}
    ids, _ = ranks.batch_of(0)
    assert torch.equal(other(ids), model(ids))
    assert loaded.param_groups[0]["lr"] == 0.02


def test_a_checkpoint_takes_the_place_of_another_only_when_it_is_whole(tmp_path, monkeypatch):
    model = ranks.Clicks(shard=False)
    for epoch in (1, 2):
        cce.save_checkpoint(tmp_path, model, epoch=epoch)
        assert cce.load_checkpoint(tmp_path, model) == {"epoch": epoch}

    def stop(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr("torch.distributed.checkpoint.FileSystemWriter.finish", stop)
    with pytest.raises(CheckpointException, match="no space left"):
        cce.save_checkpoint(tmp_path, model, epoch=3)
    with pytest.raises(FileNotFoundError, match="must be a whole checkpoint"):
        cce.load_checkpoint(tmp_path, model)


def test_what_is_no_checkpoint_is_rejected(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"must be a whole checkpoint that .* wrote, and is not"):
        cce.load_checkpoint(tmp_path, nn.Linear(1, 1))
