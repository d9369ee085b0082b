"""A checkpoint is whole and known to be, or it is not there."""

import subprocess
import sys

import pytest
import torch

from cce.training.checkpoint import (
    DamagedCheckpointError,
    checkpoint_path,
    list_checkpoints,
    open_checkpoint,
    prune_checkpoints,
    read_checkpoint,
    read_latest,
    write_checkpoint,
)

KINDS = [torch.float32, torch.bfloat16, torch.float64, torch.uint8, torch.uint16, torch.int32, torch.int64, torch.bool]
MODEL = {str(kind): torch.arange(6).view(2, 3).to(kind) for kind in KINDS}
STATE = {"step": 3, "optimizer": {0: {"step": torch.tensor(2.0), "betas": (0.9, 0.99)}}, "best": float("inf")}


@pytest.fixture
def folder(tmp_path):
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, step, MODEL, STATE | {"step": step})
    return tmp_path


def test_what_was_written_comes_back(folder):
    checkpoint = read_checkpoint(checkpoint_path(folder, 3))
    assert checkpoint.step == 3
    assert checkpoint.state == STATE
    for name, tensor in MODEL.items():
        assert checkpoint.model[name].dtype is tensor.dtype
        assert checkpoint.model[name].tolist() == tensor.tolist()
    assert {path.name for path in checkpoint_path(folder, 3).iterdir()} == {
        "model.safetensors",
        "training.safetensors",
        "checkpoint.json",
    }


def test_tensors_that_share_memory_or_have_gaps_are_saved(tmp_path):
    base = torch.arange(12.0).view(3, 4)
    model = {"a": base, "same": base, "part": base[1], "turned": base.T, "empty": torch.empty(0, 3)}
    found = read_checkpoint(write_checkpoint(tmp_path, 1, model, {})).model
    assert all(torch.equal(found[name], tensor) for name, tensor in model.items())


@pytest.mark.parametrize("name", ["model.safetensors", "training.safetensors", "checkpoint.json"])
@pytest.mark.parametrize("damage", ["changed", "cut", "missing"])
def test_damage_is_named_and_the_one_before_it_used(folder, name, damage):
    file = checkpoint_path(folder, 3) / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(content if damage == "changed" else content[:-1])
    with pytest.raises(DamagedCheckpointError, match=name):
        read_checkpoint(checkpoint_path(folder, 3))
    checkpoint, damages = read_latest(folder)
    assert checkpoint.step == 2
    assert len(damages) == 1
    assert name in damages[0]


def test_a_folder_without_a_whole_one_is_rejected(tmp_path):
    with pytest.raises(FileNotFoundError, match="must hold a whole checkpoint, got none"):
        read_latest(tmp_path)


def test_the_last_and_the_best_are_kept(folder):
    write_checkpoint(folder, 4, MODEL, STATE)
    (folder / "step-0000000009.part").mkdir()
    prune_checkpoints(folder, keep_last=2, keep=(1,))
    assert [path.name[-1] for path in list_checkpoints(folder)] == ["1", "3", "4"]
    assert len(list(folder.iterdir())) == 3


def test_a_checkpoint_can_be_written_again(folder):
    write_checkpoint(folder, 3, {"x": torch.ones(1)}, {})
    assert read_latest(folder)[0].model.keys() == {"x"}


def test_a_failure_leaves_the_ones_before(folder):
    with pytest.raises(TypeError, match="must hold plain values and tensors"):
        write_checkpoint(folder, 4, MODEL, {"x": object()})
    assert read_latest(folder)[0].step == 3


FULL_DISK = """
import resource, sys
from pathlib import Path
import torch
from cce.training.checkpoint import list_checkpoints, read_latest, write_checkpoint

folder = Path(sys.argv[1])
write_checkpoint(folder, 1, {"x": torch.zeros(10)}, {})
for size, sizes in ((10, {}), (10_000, {"y": torch.zeros(10)}), (10, {"y": torch.zeros(10_000)})):
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, -1))
    try:
        write_checkpoint(folder, 2, {"x": torch.zeros(size)}, {"text": "x" * 8000 if size == 10 else "", **sizes})
    except OSError as error:
        print(error)
    assert [path.name for path in folder.iterdir()] == ["step-0000000001"]
    assert read_latest(folder)[0].step == 1
"""


@pytest.mark.slow
def test_a_full_disk_is_told_in_one_line_and_leaves_the_ones_before(tmp_path):
    """Files may not grow beyond 4 kB there, whichever of the three is the first to be too long."""
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith(f"checkpoint {checkpoint_path(tmp_path, 2)} could not be written: ")
        assert "File too large" in line
        assert line.endswith("earlier checkpoints are intact.")


CURVE = [{"step": 1, "bce": 0.3}, {"step": 2, "bce": 0.1}, {"step": 3, "bce": 0.2}]


@pytest.fixture
def run(tmp_path):
    """A run of three checkpoints, the second of which is the best."""
    for step in (1, 2, 3):
        write_checkpoint(
            tmp_path / "checkpoints",
            step,
            MODEL,
            {"stopping": {"best_step": min(step, 2)}, "curve": CURVE, "config": {}},
        )
    return tmp_path


def test_of_a_run_the_newest_or_the_best_is_found_and_a_checkpoint_is_itself(run):
    paths = [checkpoint_path(run / "checkpoints", step) for step in (1, 2, 3)]
    assert open_checkpoint(run)[0].path == paths[2]
    assert open_checkpoint(run, best=True)[0].path == paths[1]
    assert open_checkpoint(paths[0], best=True)[0].path == paths[0]


def test_of_a_run_with_a_damaged_best_checkpoint_the_newest_is_found(run):
    best = checkpoint_path(run / "checkpoints", 2) / "training.safetensors"
    best.write_bytes(best.read_bytes()[:-1])
    checkpoint, damage = open_checkpoint(run, best=True)
    assert checkpoint.step == 3
    assert len(damage) == 1
    assert str(best) in damage[0]


def test_where_the_best_is_gone_the_newest_is_found(tmp_path):
    write_checkpoint(tmp_path / "checkpoints", 3, MODEL, {"stopping": {"best_step": -1}, "curve": []})
    assert open_checkpoint(tmp_path, best=True)[0].path == checkpoint_path(tmp_path / "checkpoints", 3)
    with pytest.raises(FileNotFoundError, match="must be a run or a checkpoint, got no whole checkpoint there"):
        open_checkpoint(tmp_path / "elsewhere")
