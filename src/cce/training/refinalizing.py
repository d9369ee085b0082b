"""`cce finalize`: another size for the tables of a finished run, from the int8 rows that it keeps."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from cce.budget import MEASURES
from cce.compression import finalize
from cce.diagnostics import summary
from cce.files import write_atomic
from cce.records import RunRecord
from cce.run_folder import RunFolder
from cce.training.checkpoint import (
    Checkpoint,
    checkpoint_path,
    read_checkpoint,
    read_latest,
    remove_checkpoint,
    write_checkpoint,
)
from cce.training.config import MAY_BE_CHOSEN_AGAIN
from cce.training.model import load_model
from cce.training.outcome import go_back_to_best
from cce.training.phases import size_arguments, sizes_of
from cce.training.saving import read_options
from cce.training.trainer import Trainer

SIZES = "sizes.json"


def finalize_run(
    out: Path | str,
    *,
    nbytes: int | None = None,
    bits: float | None = None,
    tolerance: float | None = None,
    refits: int | str = 0,
    progress: bool = False,
    model: str | None = None,
) -> RunRecord:
    """Finalize the int8 rows of a finished run again, in another size, and test it: a new record in place of the old.

    The run stays as it was until the new tables are saved; after that, `cce train --resume` ends what was interrupted.
    A stream goes on from its rows.
    """
    sizes = {"nbytes": nbytes, "bits": bits, "tolerance": tolerance}
    if _is_stream(out):
        for name, value in {"tolerance": tolerance, "refits": refits}.items():
            if value:  # which the model would have to be scored for, and it has seen all rows
                raise ValueError(f"{name} does not go with a stream, which keeps no rows for it, got {value!r}.")
        return _finalize_stream(RunFolder(Path(out)), nbytes, bits, model)
    trainer = _reopen(out, sizes | {"refits": refits}, progress=progress, model=model)
    record = trainer.run()
    _write_sizes(trainer.folder, record.sizes)
    return record


def curve_of_run(out: Path | str, *, progress: bool = False, model: str | None = None) -> list[dict[str, Any]]:
    """The sizes that the tables of a finished run may have, with their validation loss; written to `sizes.json` too."""
    if _is_stream(out):
        folder = RunFolder(Path(out))
        _, made = load_model(_rows_of_stream(folder), model=model)
        finalized = finalize(made, curve=True)
        return _write_sizes(folder, sizes_of(finalized, finalized.before))
    trainer = _reopen(out, {"refits": 0}, is_logged=False, progress=progress, model=model)
    try:
        go_back_to_best(trainer.session, trainer.folder)
        trainer.finalizing.finalize(curve=True)
        return _write_sizes(trainer.folder, trainer.finalizing.sizes)
    finally:
        trainer.close()


def discard_rows(out: Path | str) -> int:
    """Remove the int8 rows of a finished run: its size is final. The bytes that this frees."""
    folder = RunFolder(Path(out))
    if _is_stream(out):
        raise ValueError(f"{out} must have an end for its int8 rows to be removed, and a stream goes on from them.")
    with folder.lock():
        latest, steps = _finished(folder)
        latest.state["phases"]["finalize"]["rows_steps"] = []
        write_checkpoint(folder.checkpoints, latest.step, latest.model, latest.state)
        freed = 0
        for step in {*steps} - {latest.step, latest.best_step, -1}:
            path = checkpoint_path(folder.checkpoints, step)
            freed += sum(file.stat().st_size for file in path.glob("*"))
            remove_checkpoint(path)
        return freed


def _write_sizes(folder: RunFolder, sizes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    write_atomic(folder.path / SIZES, json.dumps(sizes))
    return sizes


def _is_stream(out: Path | str) -> bool:
    folder = RunFolder(Path(out))
    return folder.is_begun and bool(read_options(folder).get("stream"))


def _rows_of_stream(folder: RunFolder) -> Checkpoint:
    """The newest checkpoint of int8 rows."""
    latest, _ = read_latest(folder.checkpoints)
    steps = latest.get("phases", dict)["finalize"]["rows_steps"]
    return read_checkpoint(checkpoint_path(folder.checkpoints, steps[0])) if steps else latest


def _finalize_stream(folder: RunFolder, nbytes: int | None, bits: float | None, model: str | None) -> RunRecord:
    """Finalize the rows of a stream, by how far vectors move: in a checkpoint after that of the rows."""
    with folder.lock():
        rows, record = _rows_of_stream(folder), folder.read_record()
        options, made = load_model(rows, model=model)
        finalized = finalize(made, seed=options["seed"], **size_arguments(made, nbytes, bits))
        if not finalized.tables:
            raise ValueError(f"{folder.path} must have int8 rows to finalize, and it has none.")
        sizes, tables = _write_sizes(folder, sizes_of(finalized, finalized.before)), summary(made)
        rows.state["phases"]["finalize"] |= {"rows_steps": [rows.step, -1], "sizes": sizes}
        write_checkpoint(folder.checkpoints, rows.step + 1, made.state_dict(), rows.state)
        total = tables.total
        record = replace(record, sizes=sizes, tables=tables.tables, num_params=total.num_params, nbytes=total.nbytes)
        folder.write_record(record)
        return record


def _finished(folder: RunFolder) -> tuple[Checkpoint, list[int]]:
    """The newest checkpoint of a run whose tables are final, and the steps of its int8 rows."""
    if not folder.is_begun:
        raise FileNotFoundError(f"RUN must be the folder of a run, got {str(folder.path)!r}.")
    latest, _ = read_latest(folder.checkpoints)
    steps = latest.get("phases", dict)["finalize"]["rows_steps"]
    if not steps:
        raise ValueError(f"{folder.path} must have int8 rows to finalize: it has none, or they were discarded.")
    if not folder.is_finished or latest.step == steps[0]:
        raise ValueError(f"{folder.path} must be a finished run: resume with `cce train --resume {folder.path}`.")
    return latest, steps


def _reopen(
    out: Path | str, sizes: dict[str, Any], *, progress: bool, model: str | None, is_logged: bool = True
) -> Trainer:
    """A trainer of the run as it was when its int8 rows had trained; what it saves comes after all that there is."""
    folder = RunFolder(Path(out))
    latest, steps = _finished(folder)
    config = latest.get("config", dict)
    for name in MEASURES:
        if name != "nbytes" and config[name] is not None:
            raise ValueError(f"RUN must have tables whose size is open, got {name}={config[name]} in {folder.config}.")
    rows = read_checkpoint(checkpoint_path(folder.checkpoints, steps[0]))
    rows.state["phases"]["finalize"]["rows_steps"] = steps
    rows.state["phases"]["refit"] = {}
    rows.state["step"] = latest.step
    changes: dict[str, Any] = dict.fromkeys(MAY_BE_CHOSEN_AGAIN) | sizes | ({} if model is None else {"model": model})
    rows = replace(rows, step=latest.step)
    how = {"progress": progress, "is_logged": is_logged}
    return Trainer.resume(folder.path, rows=rows, **how, **changes)
