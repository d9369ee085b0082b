"""Checkpoints: a folder for each, whole or not there, and known to be undamaged.

`model.safetensors` holds the model, `training.safetensors` every other tensor (optimizer, random numbers, …), and
`checkpoint.json` the plain values with the checksums of all three. Nothing is pickled. A checkpoint is written to a
temporary folder, flushed to the disk and renamed, so a kill leaves the ones before.
"""

import hashlib
import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from cce.distributed import pack, unpack
from cce.files import flush, usual_permissions
from cce.run_folder import RunFolder

Value = TypeVar("Value")
FORMAT = 1
MODEL, TRAINING, MANIFEST = "model.safetensors", "training.safetensors", "checkpoint.json"


class DamagedCheckpointError(ValueError):
    """A checkpoint that is not as it was written."""


@dataclass(frozen=True)
class Checkpoint:
    """What was saved at a step."""

    path: Path
    step: int
    model: dict[str, Tensor]
    state: dict[str, Any]  # of everything else
    manifest: str = MANIFEST  # the file below `path`, a folder or a pack, that holds the state

    def get(self, name: str, kind: type[Value]) -> Value:
        """A part of the state, which must be of this type."""
        value = self.state.get(name) if isinstance(self.state, dict) else None
        if not isinstance(value, kind):
            rule = f"must hold the state of a run, with {name!r} of type {kind.__name__}"
            raise DamagedCheckpointError(f"{self.path / self.manifest} {rule}, got {value!r:.60}.")
        return value

    @property
    def best_step(self) -> int:
        """The step of the best validation until then; -1 if there was none."""
        found = self.get("stopping", dict).get("best_step")
        if not isinstance(found, int):
            raise DamagedCheckpointError(
                f"{self.path / self.manifest} must hold a best_step of type int, got {found!r:.60}."
            )
        return found


@contextmanager
def explained_misfits(path: Path) -> Iterator[None]:
    """Name the checkpoint whose content, undamaged as it is, does not fit what is made of it."""
    try:
        yield
    except DamagedCheckpointError:
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RuntimeError,
        SafetensorError,
        TypeError,
        ValueError,
    ) as error:
        reason = " ".join(str(error).split())
        what = f"{type(error).__name__}: {reason}" if isinstance(error, LookupError | AttributeError) else reason
        raise DamagedCheckpointError(f"{path} must fit the options of its run, but it does not: {what:.300}") from error


def write_checkpoint(folder: Path, step: int, model: Mapping[str, Tensor], state: Mapping[str, Any]) -> Path:
    """Save into `folder/step-…`, whole or not at all."""
    path = checkpoint_path(folder, step)
    temporary = path.with_name(path.name + ".part")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        _write_files(temporary, step, model, state)
        remove_checkpoint(path)  # a damaged one, which this run has come to again
        temporary.rename(path)
        flush(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise OSError(f"checkpoint {path} could not be written: {reason}; earlier checkpoints are intact.") from error
    return path


def _write_files(folder: Path, step: int, model: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    tensors: dict[str, Tensor] = {}
    plain = pack(dict(state), tensors)
    for name, content in ((MODEL, model), (TRAINING, tensors)):
        with usual_permissions(folder / name):
            save_file(_separate(content), folder / name)
    files = {name: _file_entry(folder / name) for name in (MODEL, TRAINING)}
    body = {"format": FORMAT, "step": step, "files": files, "state": plain}
    (folder / MANIFEST).write_text(json.dumps({"sha256": _digest(body), "body": body}), encoding="utf-8")
    for name in (MODEL, TRAINING, MANIFEST):
        flush(folder / name)


def read_checkpoint(path: Path) -> Checkpoint:
    """What was saved; a damaged checkpoint is rejected with the name of its damaged file."""
    body = read_manifest(path)
    with explained_misfits(path / MANIFEST):
        for name in (MODEL, TRAINING):
            if not (path / name).is_file():
                raise DamagedCheckpointError(f"{path / name} is missing: the checkpoint was damaged.")
            if _file_entry(path / name) != body["files"][name]:
                raise DamagedCheckpointError(f"{path / name} is not what was written: the checkpoint was damaged.")
        model, tensors = (load_file(path / name) for name in (MODEL, TRAINING))
        return Checkpoint(path, int(body["step"]), model, unpack(body["state"], tensors))


def read_manifest(path: Path) -> dict[str, Any]:
    """The plain part of a checkpoint, with its step and its files."""
    file = path / MANIFEST
    if not file.is_file():
        raise DamagedCheckpointError(f"{path} must be a checkpoint, got no {MANIFEST} there.")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        body: dict[str, Any] = content["body"]
        whole = content["sha256"] == _digest(body)
    except (ValueError, KeyError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise DamagedCheckpointError(f"{file} is not what was written: the checkpoint was damaged.")
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        found = body.get("format") if isinstance(body, dict) else body
        raise DamagedCheckpointError(f"format of {file} must be {FORMAT}, got {found!r:.60}.")
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
    raise FileNotFoundError(f"{folder} must hold a whole checkpoint, got none. {' '.join(damage)}".rstrip())


def prune_checkpoints(folder: Path, *, keep_last: int, keep: Collection[int]) -> None:
    """Keep the last ones and those of some steps, and remove the rest and what a kill left behind."""
    paths = list_checkpoints(folder)
    kept = {*paths[-keep_last:], *(checkpoint_path(folder, step) for step in keep)}
    for path in paths:
        if path not in kept:
            remove_checkpoint(path)
    for path in folder.glob("step-*.part"):
        shutil.rmtree(path, ignore_errors=True)


def remove_after(folder: Path, step: int) -> None:
    """Remove the checkpoints of later steps, which a run that goes on from this one comes to again."""
    for path in reversed(list_checkpoints(folder)):
        if path > checkpoint_path(folder, step):
            remove_checkpoint(path)


def checkpoint_path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:010d}"


def open_checkpoint(path: Path, *, best: bool = False) -> tuple[Checkpoint, list[str]]:
    """`path` itself if it is a checkpoint; of a run, its newest whole one or its best; what is wrong with others."""
    if (path / MANIFEST).exists():
        return read_checkpoint(path), []
    folder = RunFolder(path).checkpoints
    if not list_checkpoints(folder):
        raise FileNotFoundError(f"{path} must be a run or a checkpoint, got no whole checkpoint there.")
    newest, damage = read_latest(folder)
    if not best or newest.best_step < 0:
        return newest, damage
    try:
        return read_checkpoint(checkpoint_path(folder, newest.best_step)), damage
    except DamagedCheckpointError as error:
        return newest, [*damage, str(error)]


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint, renamed first: a kill on the way leaves something that is not taken for a checkpoint."""
    if path.exists():
        temporary = path.with_name(path.name + ".old.part")
        shutil.rmtree(temporary, ignore_errors=True)
        path.rename(temporary)
        shutil.rmtree(temporary, ignore_errors=True)


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors to the CPU, contiguous and without shared memory, as safetensors needs them."""
    seen: set[int] = set()
    separate = {}
    for name, tensor in tensors.items():
        here = tensor.detach().cpu().contiguous()
        if here.numel() and here.untyped_storage().data_ptr() in seen:
            here = here.view(torch.uint8).clone().view(here.dtype) if here.dim() else here.clone()
        seen.add(here.untyped_storage().data_ptr())
        separate[name] = here
    return separate


def _file_entry(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body).encode()).hexdigest()
