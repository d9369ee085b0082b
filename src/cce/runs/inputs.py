"""How raw rows become inputs of a run's model: columns, transforms and vocabularies.

A run refers to its data set by a checksum, and they are read there; nothing is written to the run's folder. A pack
holds them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from cce.runs.pack import Pack
    from cce.schema import Schema

FORMAT = 2  # of inputs in a pack
INPUTS, OPTIONS = "inputs", "inputs.json"


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
        """What turns raw rows into batches."""
        check_pyarrow()
        from cce.data import RawRows, RowEncoder

        rows = RawRows(self.columns, self.reading, has_names=self.kind == "table", has_labels=has_labels)
        return RowEncoder(schema, rows, self.vocabularies)

    def save(self, folder: Path) -> dict[str, Path]:
        """Write the files that a pack holds to a folder; their paths by name."""
        options = {"columns": asdict(self.columns), "reading": asdict(self.reading)}
        content = {"format": FORMAT, "kind": self.kind, "options": options}
        (folder / OPTIONS).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        for index, vocabulary in enumerate(self.vocabularies.values()):
            vocabulary.save(folder / _vocabulary(index))
        return {f"{INPUTS}/{path.name}": path for path in sorted(folder.iterdir())}


@dataclass(frozen=True)
class DataReference:
    """A run's folder, where its data set should be, and the checksum of the data set's manifest."""

    folder: Path
    data: Path
    checksum: str

    @property
    def is_synthetic(self) -> bool:
        """Whether the data set is there, and was not made of raw values."""
        return (self.data / MANIFEST).is_file() and read_manifest(self.data)["kind"] == "synthetic"

    def inputs(self, schema: Schema) -> RunInputs:
        """The inputs, with the vocabularies of the data set in memory: a second for some million values."""
        folder, data = self.folder, str(self.data)
        if not (self.data / MANIFEST).is_file():
            hint = "give its folder as data (--data), or pack the run where the data set is"
            raise FileNotFoundError(f"{folder} has its vocabularies in the data set {data!r}, got none there: {hint}.")
        if checksum(self.data / MANIFEST) != self.checksum:
            raise ValueError(f"data must be the data set that {folder} was trained on, but {data!r} is another.")
        manifest = read_manifest(self.data)
        columns, reading = raw_options(self.data / MANIFEST, manifest)
        check_pyarrow()
        from cce.data import index_vocabulary, vocabulary_file

        vocabularies = {}
        for index, feature in enumerate(schema.features):
            path = self.data / vocabulary_file(index)
            if not path.is_file() or checksum(path) != manifest["files"].get(vocabulary_file(index), {}).get("sha256"):
                raise ValueError(f"{path} must be as `cce prepare` wrote it, and it is missing or damaged.")
            vocabularies[feature.name] = index_vocabulary(path, feature.name, feature.num_embeddings)
        return RunInputs(manifest["kind"], columns, reading, vocabularies)


def packed_inputs(pack: Pack, schema: Schema) -> RunInputs:
    """The inputs in a pack, with vocabularies that are mapped where they lie."""
    where = pack.path / INPUTS
    options = _options(pack, where)
    columns, reading = raw_options(where / OPTIONS, options)
    vocabularies = {}
    for index, feature in enumerate(schema.features):
        try:
            found = Vocabulary.open(*pack.locate(f"{INPUTS}/{_vocabulary(index)}"))
        except OSError as error:
            raise ValueError(f"{where} must hold the vocabulary of {feature.name!r}, got none: {error}.") from error
        if (found.feature, len(found)) != (feature.name, feature.num_embeddings - 1):
            got = f"{len(found)} of {found.feature!r}"
            raise ValueError(f"{where} must hold {feature.num_embeddings - 1} values of {feature.name!r}, got {got}.")
        vocabularies[feature.name] = found
    return RunInputs(options["kind"], columns, reading, vocabularies)


def _options(pack: Pack, where: Path) -> dict[str, Any]:
    try:
        options = json.loads(pack.read(f"{INPUTS}/{OPTIONS}"))
        version, kind = options["format"], options["kind"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{where}/{OPTIONS} must be as it was written, and it is damaged: {error}.") from error
    if version != FORMAT or not isinstance(kind, str):
        raise ValueError(f"format of {where}/{OPTIONS} must be {FORMAT}, got {version!r}.")
    return dict(options)


def _vocabulary(index: int) -> str:
    return f"{index:03d}.safetensors"
