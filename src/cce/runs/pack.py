"""A run in one file, `.ccez`: its best model, its options, its scores, and what raw rows need.

It is a zip archive that compresses nothing, so that vocabularies are mapped where they lie. `pack.json` has the version
of the format and the checksum of every other file; all are checked when a pack is opened.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError
from safetensors.torch import load

from cce.files import replace_file
from cce.runs.inputs import INPUTS
from cce.training import Checkpoint
from cce.version import __version__

FORMAT, VERSION = "cce-pack", 1
MANIFEST, MODEL, RECORD = "pack.json", "model.safetensors", "record.jsonl"
ALIGNMENT = 64  # bytes, of each file within the pack
LOCAL_HEADER = 30  # bytes, before a file's name in a zip archive
COPIED = 1 << 20  # bytes at a time
LARGEST_MANIFEST = 1 << 26  # bytes; JSON takes many times as much in memory
DAMAGE = (zipfile.BadZipFile, EOFError, KeyError, TypeError, AttributeError, NotImplementedError, struct.error)
STATE = ("config", "resolved", "schema", "data", "curve")  # what a pack keeps of the state of a run


def write_pack(out: Path, checkpoint: Checkpoint, files: Mapping[str, Path]) -> None:
    """Write the pack of a checkpoint and of further files by the names they get, whole or not at all."""
    state = {name: checkpoint.state[name] for name in STATE if name in checkpoint.state}
    manifest = {"format": FORMAT, "version": VERSION, "cce": __version__, "step": checkpoint.step, "state": state}
    with replace_file(out) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        entries = {name: _add_file(archive, name, path) for name, path in files.items()}
        archive.writestr(MANIFEST, json.dumps(manifest | {"files": entries}, indent=1) + "\n")


def _add_file(archive: zipfile.ZipFile, name: str, path: Path) -> dict[str, Any]:
    """Copy a file into the archive, aligned; return its size and checksum."""
    info = zipfile.ZipInfo(name)
    info.file_size = path.stat().st_size
    assert archive.fp is not None
    before = archive.fp.tell() + LOCAL_HEADER + len(name) + 4
    info.extra = struct.pack("<HH", 0xFFFF, -before % ALIGNMENT) + bytes(-before % ALIGNMENT)  # an id that nobody has
    digest = hashlib.sha256()
    with path.open("rb") as source, archive.open(info, "w") as target:
        while block := source.read(COPIED):
            digest.update(block)
            target.write(block)
    return {"bytes": info.file_size, "sha256": digest.hexdigest()}


@dataclass(frozen=True)
class Pack:
    """A pack that was opened, all of whose files are as they were written."""

    path: Path
    manifest: dict[str, Any]
    starts: dict[str, int]  # where each file begins

    @classmethod
    def open(cls, path: Path) -> Pack:
        """Check and open a pack; one that is damaged, foreign or newer is rejected in one line."""
        if not path.is_file():
            raise FileNotFoundError(f"{path} must be a pack made by `cce pack`, and there is no such file.")
        try:
            with zipfile.ZipFile(path) as archive, path.open("rb") as file:
                manifest = _manifest(archive, path)
                starts = {name: _start(archive, file, name) for name in manifest["files"]}
                for name, entry in manifest["files"].items():
                    _check(file, starts[name], archive.getinfo(name), entry)
        except DAMAGE as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(f"{path} must be a whole pack made by `cce pack`, got damage: {reason:.200}.") from error
        return cls(path, manifest, starts)

    @property
    def step(self) -> int:
        """The step of the packed checkpoint."""
        return self.manifest["step"]  # type: ignore[no-any-return]

    @property
    def has_inputs(self) -> bool:
        """Whether it holds what raw rows need."""
        return any(name.startswith(f"{INPUTS}/") for name in self.starts)

    def read(self, name: str) -> bytes:
        """The content of a file."""
        path, start = self.locate(name)
        with path.open("rb") as file:
            file.seek(start)
            return file.read(self.manifest["files"][name]["bytes"])

    def locate(self, name: str) -> tuple[Path, int]:
        """The path of the pack, and where the file begins in it."""
        if name not in self.starts:
            raise FileNotFoundError(f"{self.path} has no {name}")
        return self.path, self.starts[name]

    def below(self, folder: str) -> PackFolder:
        """Its files in a folder."""
        return PackFolder(self, folder)

    def checkpoint(self) -> Checkpoint:
        """The packed model with its state."""
        try:
            tensors = load(self.read(MODEL))
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{self.path} must hold a model, and it does not: {error}.") from error
        return Checkpoint(self.path, self.step, tensors, self.manifest["state"], manifest=MANIFEST)


@dataclass(frozen=True)
class PackFolder:
    """The files of a pack in one folder."""

    pack: Pack
    folder: str

    def read(self, name: str) -> bytes:
        """The content of a file."""
        return self.pack.read(f"{self.folder}/{name}")

    def locate(self, name: str) -> tuple[Path, int]:
        """The path of the pack, and where the file begins in it."""
        return self.pack.locate(f"{self.folder}/{name}")


def _manifest(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    if MANIFEST not in archive.namelist():
        raise ValueError(f"{path} must be a pack made by `cce pack`, got an archive without {MANIFEST}.")
    info = archive.getinfo(MANIFEST)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > LARGEST_MANIFEST:
        what = f"{info.file_size:,} bytes{'' if info.compress_type == zipfile.ZIP_STORED else ', compressed'}"
        raise TypeError(f"{MANIFEST} must be at most {LARGEST_MANIFEST:,} bytes, stored as they are, got {what}")
    try:
        manifest = json.loads(archive.read(MANIFEST))
    except (ValueError, RecursionError) as error:
        raise TypeError(f"{MANIFEST} is not JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"{path} must be a pack made by `cce pack`, got another format in {MANIFEST}.")
    version, step, _ = manifest["version"], manifest["step"], manifest["state"]
    if type(step) is not int or not isinstance(manifest["files"], dict):
        raise TypeError(f"{MANIFEST} is not as it was written")
    if version != VERSION:
        made = f"made by cce {manifest.get('cce')}"
        raise ValueError(f"version of the pack {path} must be {VERSION}, got {version!r:.20}, {made}: update cce.")
    return manifest


def _start(archive: zipfile.ZipFile, file: IO[bytes], name: str) -> int:
    """Where the bytes of a file begin in the archive."""
    info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED:
        raise TypeError(f"{name} is compressed")
    file.seek(info.header_offset)
    name_length, extra_length = struct.unpack("<26xHH", file.read(LOCAL_HEADER))
    return int(info.header_offset + LOCAL_HEADER + name_length + extra_length)


def _check(file: IO[bytes], start: int, info: zipfile.ZipInfo, entry: dict[str, Any]) -> None:
    """Reject a file whose bytes are not those that were written."""
    digest, left = hashlib.sha256(), info.file_size
    if entry["bytes"] != left:
        raise TypeError(f"{info.filename} must have the {entry['bytes']!r:.20} bytes that {MANIFEST} says, got {left}")
    file.seek(start)
    while block := file.read(min(left, COPIED)):
        digest.update(block)
        left -= len(block)
    if digest.hexdigest() != entry["sha256"]:
        raise TypeError(f"{info.filename} is not what was written")
