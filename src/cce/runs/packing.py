"""`pack_run`: the pack of a run, made of its best checkpoint, its record and what raw rows need."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cce.data import MANIFEST, read_manifest
from cce.runs.inputs import INPUTS, OPTIONS, DataReference, find_inputs, input_file
from cce.runs.loaded import run_folder
from cce.runs.pack import MODEL, RECORD, Pack, write_pack
from cce.training import open_checkpoint, read_schema

if TYPE_CHECKING:
    from cce.training import Checkpoint

NO_VOCABULARIES = ("synthetic", "baked")  # kinds of data sets


def pack_run(path: Path | str, out: Path | str, *, data: Path | str | None = None, progress: bool = False) -> Pack:
    """Write the run in a folder, at its best checkpoint, to one file that `load_run` opens anywhere.

    data: the data set of the run, if it is not where it was. One that is synthetic or baked has no vocabularies, nor
    has its pack.
    """
    where, target = Path(path), Path(out)
    if where.is_file():
        raise ValueError(f"path must be the folder of a run, got the file {str(where)!r}.")
    if target.is_dir():
        raise IsADirectoryError(f"out must be a file, got the folder {str(target)!r}.")
    checkpoint, damage = open_checkpoint(where, best=True)
    if damage:
        raise ValueError(f"path must be a run whose last and best checkpoints are whole: {damage[0]}")
    folder = run_folder(where)
    files = {MODEL: checkpoint.path / MODEL}
    if folder.is_finished:
        files[RECORD] = folder.record
    given = Path(data or checkpoint.get("config", dict)["data"])
    files |= _input_files(checkpoint, DataReference(folder.path, given, checkpoint.get("data", str), progress=progress))
    write_pack(target, checkpoint, files)
    return Pack.open(target)


def _input_files(checkpoint: Checkpoint, reference: DataReference) -> dict[str, Path]:
    if (reference.data / MANIFEST).is_file() and read_manifest(reference.data)["kind"] in NO_VOCABULARIES:
        return {}
    schema = read_schema(checkpoint)
    files = find_inputs(reference, schema).files
    names = [OPTIONS, *(input_file(index) for index in range(len(schema.features)))]
    return {f"{INPUTS}/{name}": files.locate(name)[0] for name in names}
