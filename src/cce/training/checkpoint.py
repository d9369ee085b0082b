"""Checkpoints: a folder for each, whole or not there, and known to be undamaged.

`model.safetensors` holds the model, `training.safetensors` every other tensor (optimizer, random numbers, …), and
`checkpoint.json` the plain values with the checksums of all three. Nothing is pickled. A checkpoint is written aside,
flushed to the disk and renamed, so a kill leaves the ones before.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

from cce.distributed.packing import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

FORMAT = 1
MODEL, TRAINING, MANIFEST = "model.safetensors", "training.safetensors", "checkpoint.json"


class DamagedCheckpointError(ValueError):
    """A checkpoint that is not as it was written."""


@dataclass(frozen=True)
class Checkpoint:
    """What was saved at a step."""

    step: int
    model: dict[str, Tensor]
    state: dict[str, Any]  # of everything else


def write_checkpoint(folder: Path, step: int, model: Mapping[str, Tensor], state: Mapping[str, Any]) -> Path:
    """Save into `folder/step-…`, whole or not at all."""
    path = checkpoint_path(folder, step)
    aside = path.with_name(path.name + ".part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    tensors: dict[str, Tensor] = {}
    plain = pack(dict(state), tensors)
    save_file(_separate(model), aside / MODEL)
    save_file(_separate(tensors), aside / TRAINING)
    files = {name: _facts(aside / name) for name in (MODEL, TRAINING)}
    body = {"format": FORMAT, "step": step, "files": files, "state": plain}
    (aside / MANIFEST).write_text(json.dumps({"sha256": _digest(body), "body": body}), encoding="utf-8")
    for name in (MODEL, TRAINING, MANIFEST):
        _flush(aside / name)
    _remove(path)  # a damaged one, which this run has come to again
    aside.rename(path)
    _flush(folder)
    return path


def read_checkpoint(path: Path) -> Checkpoint:
    """What was saved; a damaged checkpoint is refused with the name of its damaged file."""
    body = read_manifest(path)
    for name, facts in body["files"].items():
        if not (path / name).exists():
            raise DamagedCheckpointError(f"{path / name} is missing: the checkpoint was damaged.")
        if _facts(path / name) != facts:
            raise DamagedCheckpointError(f"{path / name} is not what was written: the checkpoint was damaged.")
    state = unpack(body["state"], load_file(path / TRAINING))
    return Checkpoint(body["step"], load_file(path / MODEL), state)


def read_manifest(path: Path) -> dict[str, Any]:
    """The plain part of a checkpoint, with its step and its files."""
    file = path / MANIFEST
    if not file.exists():
        raise DamagedCheckpointError(f"{path} must be a checkpoint, got no {MANIFEST} there.")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        body: dict[str, Any] = content["body"]
        whole = content["sha256"] == _digest(body)
    except (ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise DamagedCheckpointError(f"{file} is not what was written: the checkpoint was damaged.")
    if body["format"] != FORMAT:
        raise ValueError(f"format of {file} must be {FORMAT}, got {body['format']}.")
    return body


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a folder, the oldest first."""
    return sorted(path for path in folder.glob("step-*") if path.is_dir() and not path.name.endswith(".part"))


def read_latest(folder: Path) -> tuple[Checkpoint, list[str]]:
    """The newest checkpoint that is whole, and what is wrong with those that came after it."""
    damage: list[str] = []
    for path in reversed(list_checkpoints(folder)):
        try:
            return read_checkpoint(path), damage
        except DamagedCheckpointError as error:
            damage.append(str(error))
    raise FileNotFoundError("\n".join([*damage, f"{folder} must hold a whole checkpoint, got none."]))


def prune_checkpoints(folder: Path, *, keep_last: int, best_step: int) -> None:
    """Keep the last ones and the best, and remove the rest and what a kill left behind."""
    paths = list_checkpoints(folder)
    kept = {*paths[-keep_last:], checkpoint_path(folder, best_step)}
    for path in paths:
        if path not in kept:
            _remove(path)
    for path in folder.glob("step-*.part"):
        shutil.rmtree(path, ignore_errors=True)


def checkpoint_path(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return folder / f"step-{step:010d}"


def find_checkpoint(path: Path, *, best: bool = False) -> Path:
    """`path` itself if it is a checkpoint; of a run, the newest whole one or the best."""
    if (path / MANIFEST).exists():
        return path
    folder = path / "checkpoints"
    for candidate in reversed(list_checkpoints(folder)):
        try:
            best_step = read_checkpoint(candidate).state["stopping"]["best_step"]
        except DamagedCheckpointError:
            continue
        chosen = checkpoint_path(folder, best_step)
        return chosen if best and chosen.exists() else candidate
    raise FileNotFoundError(f"{path} must be a run or a checkpoint, got no whole checkpoint there.")


def _remove(path: Path) -> None:
    """Rename first: a kill on the way leaves something that is not taken for a checkpoint."""
    if path.exists():
        aside = path.with_name(path.name + ".old.part")
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """On the CPU, without gaps, and none sharing memory with another, as safetensors needs them."""
    seen: set[int] = set()
    separate = {}
    for name, tensor in tensors.items():
        here = tensor.detach().cpu().contiguous()
        if here.numel() and here.untyped_storage().data_ptr() in seen:
            here = here.view(torch.uint8).clone().view(here.dtype) if here.dim() else here.clone()
        seen.add(here.untyped_storage().data_ptr())
        separate[name] = here
    return separate


def _facts(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body).encode()).hexdigest()


def _flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
