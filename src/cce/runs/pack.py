"""A run in one file, `.ccez`: its best model, its options, its scores, and what raw rows need.

It is a zip archive that compresses nothing, so that vocabularies are mapped where they lie. `pack.json` has the version
of the format and the names of all other files, whose checksums, those of the archive, are checked when it is opened.

What raw rows need are columns, transforms and vocabularies. A run that is not packed refers to its data set by a
checksum, and they are read there; nothing is written to the run's folder.
"""

from __future__ import annotations

import json
import shutil
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.torch import load

from cce.data import MANIFEST, Columns, Reading, Vocabulary, check_pyarrow, checksum, raw_options, read_manifest
from cce.files import replace_file
from cce.records import RunRecord
from cce.run_folder import RunFolder
from cce.schema import Schema
from cce.training import Checkpoint
from cce.version import __version__

if TYPE_CHECKING:
    from cce.data import RowEncoder  # which needs pyarrow

FORMAT, VERSION = "cce-pack", 1
PACKED, MODEL, RECORD = "pack.json", "model.safetensors", "record.jsonl"
ALIGNMENT = 64  # bytes, of each file within the pack
LOCAL_HEADER = 30  # bytes, before a file's name in a zip archive
LARGEST_MANIFEST = 1 << 26  # bytes; JSON takes many times as much in memory
DAMAGE = (zipfile.BadZipFile, EOFError, KeyError, TypeError, AttributeError, NotImplementedError, struct.error)
INPUTS, OPTIONS = "inputs", "inputs.json"
INPUTS_FORMAT = 2
STATE = ("config", "resolved", "schema", "data", "curve")  # what a pack keeps of the state of a run


def write_pack(out: Path, checkpoint: Checkpoint, files: Mapping[str, Path]) -> None:
    """Write the pack of a checkpoint and of further files by the names they get, whole or not at all."""
    state = {name: checkpoint.state[name] for name in STATE if name in checkpoint.state}
    manifest = {"format": FORMAT, "version": VERSION, "cce": __version__, "step": checkpoint.step, "state": state}
    with replace_file(out) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, path in files.items():
            _add_file(archive, name, path)
        entries = {name: {"bytes": path.stat().st_size} for name, path in files.items()}
        archive.writestr(PACKED, json.dumps(manifest | {"files": entries}, indent=1) + "\n")


def _add_file(archive: zipfile.ZipFile, name: str, path: Path) -> None:
    """Copy a file into the archive, aligned."""
    info = zipfile.ZipInfo(name)
    info.file_size = path.stat().st_size
    assert archive.fp is not None
    before = archive.fp.tell() + LOCAL_HEADER + len(name) + 4
    info.extra = struct.pack("<HH", 0xFFFF, -before % ALIGNMENT) + bytes(-before % ALIGNMENT)  # an id that nobody has
    with path.open("rb") as source, archive.open(info, "w") as target:
        shutil.copyfileobj(source, target, 1 << 20)


@dataclass(frozen=True)
class Pack:
    """A pack that was opened, all of whose files are as they were written."""

    path: Path
    manifest: dict[str, Any]
    spans: dict[str, tuple[int, int]]  # where each file begins, and its bytes

    @classmethod
    def open(cls, path: Path) -> Pack:
        """Check and open a pack; one that is damaged, foreign or newer is rejected in one line."""
        try:
            with zipfile.ZipFile(path) as archive, path.open("rb") as file:
                manifest = _manifest(archive, path)
                spans = {name: _span(archive.getinfo(name), file) for name in manifest["files"]}
                if (damaged := archive.testzip()) is not None:
                    raise TypeError(f"{damaged} is not what was written")
        except DAMAGE as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(f"{path} must be a whole pack made by `cce pack`, got damage: {reason:.200}.") from error
        return cls(path, manifest, spans)

    @property
    def step(self) -> int:
        return self.manifest["step"]  # type: ignore[no-any-return]

    @property
    def has_inputs(self) -> bool:
        """Whether it holds what raw rows need."""
        return any(name.startswith(f"{INPUTS}/") for name in self.spans)

    @cached_property
    def record(self) -> RunRecord | None:
        """That of the run, if it was finished."""
        if RECORD not in self.spans:
            return None
        try:
            return RunRecord.from_json(self.read(RECORD).decode())
        except (ValueError, TypeError) as error:
            raise ValueError(f"{RECORD} of {self.path} must hold the record of a run: {error}") from error

    def inputs(self, schema: Schema) -> RunInputs:
        """The inputs, with vocabularies that are mapped where they lie."""
        if not self.has_inputs:
            raise ValueError(f"{self.path} has no vocabularies, as its data set had none: it predicts no raw rows.")
        where = self.path / INPUTS
        options = _options(self, where)
        columns, reading = raw_options(where / OPTIONS, options)
        vocabularies = {}
        for index, feature in enumerate(schema.features):
            try:
                found = Vocabulary.open(*self.locate(f"{INPUTS}/{_vocabulary(index)}"))
            except OSError as error:
                raise ValueError(f"{where} must hold the vocabulary of {feature.name!r}, got none: {error}.") from error
            if (found.feature, found.num_embeddings) != (feature.name, feature.num_embeddings):
                got = f"{found.num_embeddings} of {found.feature!r}"
                raise ValueError(f"{where} must hold {feature.num_embeddings} ids of {feature.name!r}, got {got}.")
            vocabularies[feature.name] = found
        return RunInputs(options["kind"], columns, reading, vocabularies)

    def read(self, name: str) -> bytes:
        path, start = self.locate(name)
        with path.open("rb") as file:
            file.seek(start)
            return file.read(self.spans[name][1])

    def locate(self, name: str) -> tuple[Path, int]:
        """The path of the pack, and where the file begins in it."""
        if name not in self.spans:
            raise FileNotFoundError(f"{self.path} has no {name}")
        return self.path, self.spans[name][0]

    def checkpoint(self) -> Checkpoint:
        try:
            tensors = load(self.read(MODEL))
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{self.path} must hold a model, and it does not: {error}.") from error
        return Checkpoint(self.path, self.step, tensors, self.manifest["state"], manifest=PACKED)


def _manifest(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    if PACKED not in archive.namelist():
        raise ValueError(f"{path} must be a pack made by `cce pack`, got an archive without {PACKED}.")
    info = archive.getinfo(PACKED)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > LARGEST_MANIFEST:
        raise TypeError(f"{PACKED} must be stored as it is, with at most {LARGEST_MANIFEST:,} bytes")
    try:
        manifest = json.loads(archive.read(PACKED))
    except (ValueError, RecursionError) as error:
        raise TypeError(f"{PACKED} is not JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"{path} must be a pack made by `cce pack`, got another format in {PACKED}.")
    version, step, _ = manifest["version"], manifest["step"], manifest["state"]
    if type(step) is not int or not isinstance(manifest["files"], dict):
        raise TypeError(f"{PACKED} is not as it was written")
    if version != VERSION:
        made = f"made by cce {manifest.get('cce')}"
        raise ValueError(f"version of the pack {path} must be {VERSION}, got {version!r:.20}, {made}: update cce.")
    return manifest


def _span(info: zipfile.ZipInfo, file: IO[bytes]) -> tuple[int, int]:
    """Where the bytes of a file begin in the archive, and how many there are."""
    if info.compress_type != zipfile.ZIP_STORED:
        raise TypeError(f"{info.filename} is compressed")
    file.seek(info.header_offset)
    name_length, extra_length = struct.unpack("<26xHH", file.read(LOCAL_HEADER))
    return info.header_offset + LOCAL_HEADER + name_length + extra_length, info.file_size


# -- what raw rows need -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunInputs:
    """What raw rows must have, and the vocabularies of their features by name.

    kind: of the source of the data set; columns of a table are found by name, and others by their position in a line.
    """

    kind: str
    columns: Columns
    reading: Reading
    vocabularies: dict[str, Vocabulary]

    def encoder(self, schema: Schema, *, has_labels: bool = False) -> RowEncoder:
        check_pyarrow()
        from cce.data import RawRows, RowEncoder

        rows = RawRows(self.columns, self.reading, has_names=self.kind == "table", has_labels=has_labels)
        return RowEncoder(schema, rows, self.vocabularies)

    def save(self, folder: Path) -> dict[str, Path]:
        """Write the files that a pack holds to a folder; their paths by name."""
        options = {"columns": asdict(self.columns), "reading": asdict(self.reading)}
        content = {"format": INPUTS_FORMAT, "kind": self.kind, "options": options}
        (folder / OPTIONS).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        for index, vocabulary in enumerate(self.vocabularies.values()):
            vocabulary.save(folder / _vocabulary(index))
        return {f"{INPUTS}/{path.name}": path for path in sorted(folder.iterdir())}


@dataclass(frozen=True)
class DataReference:
    """A run's folder, where its data set should be, and the checksum of the data set's manifest."""

    folder: RunFolder
    data: Path
    checksum: str

    @property
    def has_inputs(self) -> bool:
        """Whether the data set was made of raw values, as far as is known."""
        return not (self.data / MANIFEST).is_file() or read_manifest(self.data)["kind"] != "synthetic"

    @cached_property
    def record(self) -> RunRecord | None:
        """That of the run, if it is finished."""
        return self.folder.read_record() if self.folder.is_finished else None

    def inputs(self, schema: Schema) -> RunInputs:
        """The inputs, with the vocabularies of the data set in memory: a second for some million values."""
        folder, data = self.folder.path, str(self.data)
        if not (self.data / MANIFEST).is_file():
            hint = "give its folder as data (--data), or pack the run where the data set is"
            raise FileNotFoundError(f"{folder} has its vocabularies in the data set {data!r}, got none there: {hint}.")
        if checksum(self.data / MANIFEST) != self.checksum:
            raise ValueError(f"data must be the data set that {folder} was trained on, but {data!r} is another.")
        manifest = read_manifest(self.data)
        columns, reading = raw_options(self.data / MANIFEST, manifest)
        check_pyarrow()
        from cce.data import load_vocabularies

        return RunInputs(manifest["kind"], columns, reading, load_vocabularies(self.data, manifest, schema))


def _options(pack: Pack, where: Path) -> dict[str, Any]:
    try:
        options = json.loads(pack.read(f"{INPUTS}/{OPTIONS}"))
        version, kind = options["format"], options["kind"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{where}/{OPTIONS} must be as it was written, and it is damaged: {error}.") from error
    if version != INPUTS_FORMAT or not isinstance(kind, str):
        raise ValueError(f"format of {where}/{OPTIONS} must be {INPUTS_FORMAT}, got {version!r}.")
    return dict(options)


def _vocabulary(index: int) -> str:
    return f"{index:03d}.safetensors"
