"""`pack_run`: the pack of a run, made of its best checkpoint, its record and what raw rows need."""

from __future__ import annotations

from pathlib import Path

from cce.data import MANIFEST, read_manifest
from cce.files import check_target
from cce.runs.inputs import INPUTS, OPTIONS, DataReference, find_inputs, input_file
from cce.runs.loaded import run_folder
from cce.runs.pack import MODEL, RECORD, Pack, write_pack
from cce.training import open_checkpoint, read_schema


def pack_run(path: Path | str, out: Path | str, *, data: Path | str | None = None, progress: bool = False) -> Pack:
    """Write the run in a folder, at its best checkpoint, to one file that `load_run` opens anywhere.

    data: the data set of the run, if it is not where it was. A synthetic one has no
        vocabularies, and neither has its pack.
    """
    where, target = Path(path), Path(out)
    if where.is_file():
        raise ValueError(f"path must be the folder of a run, got the file {str(where)!r}.")
    check_target("out", target)
    checkpoint, damage = open_checkpoint(where, best=True)
    if damage:
        raise ValueError(f"path must be a run whose last and best checkpoints are whole: {damage[0]}")
    folder = run_folder(where)
    files = {MODEL: checkpoint.path / MODEL}
    if folder.is_finished:
        files[RECORD] = folder.record
    fingerprint, was = checkpoint.get("data", str), checkpoint.get("config", dict)["data"]
    reference = DataReference(folder.path, Path(data or was), fingerprint, progress=progress)
    if not ((reference.data / MANIFEST).is_file() and read_manifest(reference.data)["kind"] == "synthetic"):
        inputs = find_inputs(reference, read_schema(checkpoint))  # may lie in a folder that goes when they go
        names = [OPTIONS, *(input_file(index) for index in range(len(inputs.vocabularies)))]
        files |= {f"{INPUTS}/{name}": inputs.files.locate(name)[0] for name in names}
    write_pack(target, checkpoint, files)
    return Pack.open(target)
