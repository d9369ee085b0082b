"""How raw rows become inputs of a run's model: columns, transforms and vocabularies, in a folder of files.

A run refers to its data set by a checksum. `inputs/` in the folder of the run is made of the data set when it is first
needed, and from then on the run can do without; a pack holds the same files.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tqdm import tqdm

from cce.data import (
    MANIFEST,
    Columns,
    Reading,
    RowEncoder,
    Vocabulary,
    check_pyarrow,
    checksum,
    raw_options,
    read_manifest,
)
from cce.files import replace_folder

if TYPE_CHECKING:
    from cce.schema import Schema

FORMAT = 2
INPUTS, OPTIONS = "inputs", "inputs.json"


class Files(Protocol):
    """Files by name: those of a folder, or of a pack."""

    def read(self, name: str) -> bytes:
        """The content of a file."""

    def locate(self, name: str) -> tuple[Path, int]:
        """The path of the file that holds it, and where it begins there."""


@dataclass(frozen=True)
class FolderFiles:
    """Files of a folder."""

    folder: Path

    @classmethod
    def temporary(cls) -> FolderFiles:
        """Those of a new folder, which is removed when nobody holds them any more."""
        made = cls(Path(tempfile.mkdtemp(prefix="cce-")))
        weakref.finalize(made, shutil.rmtree, made.folder, ignore_errors=True)
        return made

    def read(self, name: str) -> bytes:
        """The content of a file."""
        return (self.folder / name).read_bytes()

    def locate(self, name: str) -> tuple[Path, int]:
        """The path of a file, which begins at 0."""
        return self.folder / name, 0


@dataclass(frozen=True)
class RunInputs:
    """What raw rows must have, and the vocabularies of their features by name.

    has_names: whether columns of the data set were found by name, rather than by their position in a line.
    """

    columns: Columns
    reading: Reading
    has_names: bool
    vocabularies: dict[str, Vocabulary]
    files: Files  # held while vocabularies are mapped

    def encoder(self, schema: Schema, *, has_labels: bool = False) -> RowEncoder:
        """What turns raw rows into batches."""
        check_pyarrow()
        from cce.data import RawRows, RowEncoder

        rows = RawRows(self.columns, self.reading, has_names=self.has_names, has_labels=has_labels)
        return RowEncoder(schema, rows, self.vocabularies)


def input_file(index: int) -> str:
    """The name of the vocabulary of the `index`-th feature."""
    return f"{index:03d}.safetensors"


def read_inputs(files: Files, schema: Schema, where: Path) -> RunInputs:
    """The inputs in a folder or a pack, which `where` names in errors."""
    options = _options(files, where)
    columns, reading = raw_options(where / OPTIONS, options)
    vocabularies = {}
    for index, feature in enumerate(schema.features):
        try:
            path, start = files.locate(input_file(index))
            found = Vocabulary.open(path, start)
        except OSError as error:
            raise ValueError(f"{where} must hold the vocabulary of {feature.name!r}, got none: {error}.") from error
        if (found.feature, len(found)) != (feature.name, feature.num_embeddings - 1):
            got = f"{len(found)} of {found.feature!r}"
            raise ValueError(f"{where} must hold {feature.num_embeddings - 1} values of {feature.name!r}, got {got}.")
        if start == 0 and checksum(path) != options.get("files", {}).get(path.name):  # a pack has checksums of its own
            raise ValueError(f"{path} must be as it was written, and it is damaged: remove its folder to make it anew.")
        vocabularies[feature.name] = found
    return RunInputs(columns, reading, options["kind"] == "table", vocabularies, files)


@dataclass(frozen=True)
class DataReference:
    """A run's folder, where its data set should be, and the checksum of the data set's manifest."""

    folder: Path
    data: Path
    checksum: str
    progress: bool = False

    def check(self) -> None:
        """Reject a data set that is not there, or is another one."""
        folder, data = self.folder, str(self.data)
        if not (self.data / MANIFEST).is_file():
            hint = "give its folder as data (--data), or pack the run where the data set is"
            raise FileNotFoundError(f"{folder} has its vocabularies in the data set {data!r}, got none there: {hint}.")
        if checksum(self.data / MANIFEST) != self.checksum:
            raise ValueError(f"data must be the data set that {folder} was trained on, but {data!r} is another.")


def find_inputs(reference: DataReference, schema: Schema) -> RunInputs:
    """The inputs of a run; made of its data set if they are missing."""
    found = reference.folder / INPUTS
    if (found / OPTIONS).is_file() and _options(FolderFiles(found), found).get("data") == reference.checksum:
        return read_inputs(FolderFiles(found), schema, found)
    reference.check()
    files = _make_inputs(reference, schema)
    return read_inputs(files, schema, files.folder)


def _options(files: Files, where: Path) -> dict[str, Any]:
    try:
        options = json.loads(files.read(OPTIONS))
        version, kind = options["format"], options["kind"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{where}/{OPTIONS} must be as it was written, and it is damaged: {error}.") from error
    if version != FORMAT or not isinstance(kind, str):
        raise ValueError(f"format of {where}/{OPTIONS} must be {FORMAT}, got {version!r}.")
    return dict(options)


def _make_inputs(reference: DataReference, schema: Schema) -> FolderFiles:
    """Write `inputs/`, whole or not at all; to a temporary folder if the run's cannot be written."""
    folder, manifest = reference.folder, read_manifest(reference.data)
    columns, reading = raw_options(reference.data / MANIFEST, manifest)
    options = {"format": FORMAT, "data": reference.checksum, "kind": manifest["kind"]}
    options["options"] = {"columns": asdict(columns), "reading": asdict(reading)}
    with ExitStack() as stack:
        made = FolderFiles(folder / INPUTS)
        try:
            temporary = stack.enter_context(replace_folder(made.folder))  # an old one is that of another data set
        except OSError:
            made = FolderFiles.temporary()
            temporary = made.folder
        _write_inputs(temporary, reference, options, schema)
    return made


def _write_inputs(folder: Path, reference: DataReference, options: Mapping[str, Any], schema: Schema) -> None:
    check_pyarrow()
    from cce.data import index_vocabulary, vocabulary_file

    files, sums = read_manifest(reference.data)["files"], dict[str, str]()
    features = tqdm(schema.features, "vocabularies", leave=False, disable=None if reference.progress else True)
    for index, feature in enumerate(features):
        path = reference.data / vocabulary_file(index)
        if not path.is_file() or checksum(path) != files.get(vocabulary_file(index), {}).get("sha256"):
            raise ValueError(f"{path} must be as `cce prepare` wrote it, and it is missing or damaged.")
        index_vocabulary(path, feature.name, feature.num_embeddings).save(folder / input_file(index))
        sums[input_file(index)] = checksum(folder / input_file(index))
    (folder / OPTIONS).write_text(json.dumps({**options, "files": sums}, indent=1) + "\n", encoding="utf-8")
