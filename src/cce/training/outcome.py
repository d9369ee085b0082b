"""What a finished run leaves: its best model, and its record, with where it ran."""

from __future__ import annotations

import platform
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from cce.collection import readable_path
from cce.diagnostics import gradient_nbytes, summary
from cce.distributed import broadcast
from cce.embeddings import Finalizable, unshard
from cce.footprint import Footprint, Footprints
from cce.records import RunRecord
from cce.run_folder import RunFolder
from cce.training.checkpoint import DamagedCheckpointError, checkpoint_path, read_checkpoint
from cce.training.model import make_model
from cce.training.scoring import Scores
from cce.version import __version__
from cce.workers import num_cores

if TYPE_CHECKING:
    from cce.training.session import Session
    from cce.training.trainer import Trainer


def best_model(session: Session, folder: RunFolder) -> tuple[nn.Module, str]:
    """The model at the best validation, and what is wrong with its checkpoint: then it is the model as it is now."""
    weights, damage = _best_weights(session, folder)
    if weights is None:
        return session.model, damage
    model = make_model(vars(session.config), session.data.schema)  # clusterings may have changed its tables
    model.load_state_dict(weights)
    unshard(model)
    return model.to(session.device), ""


def go_back_to_best(session: Session, folder: RunFolder) -> None:
    """Let the model, whose tables are still those of the best validation, have its weights."""
    if session.stopping.best_step != session.step:
        weights, _ = _best_weights(session, folder)
        if weights is not None:
            session.model.load_state_dict(weights)


def _best_weights(session: Session, folder: RunFolder) -> tuple[dict[str, Tensor] | None, str]:
    """Those of the best validation, and what is wrong with their checkpoint; None without them."""
    if session.stopping.best_step < 0:
        return None, ""
    weights, damage = None, ""
    if session.ranks.is_main:
        try:
            weights = read_checkpoint(checkpoint_path(folder.checkpoints, session.stopping.best_step)).model
        except DamagedCheckpointError as error:
            damage = str(error)
    found: tuple[dict[str, Tensor] | None, str] = broadcast((weights, damage), session.ranks)
    return found


def keep_record(trainer: Trainer, scores: Scores, *, name: str = "", series: str = "") -> RunRecord:
    """The record of a run, written to its folder."""
    session, folder = trainer.session, trainer.folder
    tables, seconds = summary(trainer.model), session.stopwatch.seconds
    lines, _ = folder.scan_log()
    record = RunRecord(
        method=session.config.method,
        seed=session.config.seed,
        num_params=tables.total.num_params,
        nbytes=tables.total.nbytes,
        scores=scores,
        seconds=sum(seconds.values()),
        config=asdict(trainer.given),
        resolved=asdict(session.config),
        curve=session.curve,
        samples_per_second=session.rows_trained / seconds["train"] if "train" in seconds else 0.0,
        seconds_by_part=dict(seconds),
        peak_nbytes=dict(session.memory.peaks),
        sizes=trainer.finalizing.sizes,
        name=name,
        series=series,
        tables=_tables(tables, trainer),
        events=[line for line in lines if line["kind"] == "cluster"],
        environment=environment(),
        curve_before_finalize=trainer.finalizing.curve_before,
    )
    if session.ranks.is_main:
        folder.write_record(record)
    return record


def _tables(tables: Footprints, trainer: Trainer) -> tuple[Footprint, ...]:
    """The tables of the best model, with what they held besides in training, as the last model's tables know it."""
    held = held_in_training(trainer.session) | trainer.finalizing.trained_nbytes
    return tuple(replace(table, **held[table.name]) for table in tables.tables)


def held_in_training(session: Session) -> dict[str, dict[str, Any]]:
    """Bytes that tables hold besides codebooks and pointers, as they train now: by the paths of their modules, the
    parts of a `Footprint`.
    """
    modules = {readable_path(name): module for name, module in session.model.named_modules()}
    held = {}
    for table in summary(session.model, session.optimizer).tables:
        module, codes = modules[table.name], 0
        if isinstance(module, Finalizable) and not module.is_final:
            codes = table.nbytes - module.rows.recent.nbytes  # of ids not yet in the map: a resumed run has none
            num_ids = min(session.config.batch_size, module.rows.num_rows - 1)
            gradients = num_ids * (4 * table.embedding_dim + 3 * 8)  # a vector and three integers for each
        else:
            gradients = gradient_nbytes(module, sparse=session.config.sparse)
        parts = {"codes_nbytes": codes, "gradient_nbytes": gradients, "optimizer_nbytes": table.optimizer_nbytes}
        held[table.name] = parts
    return held


def environment() -> dict[str, Any]:
    """Versions, the machine, and the commit of the package where it is a checkout."""
    return {
        "cce": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": num_cores(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _commit() -> str | None:
    """The commit of the checkout that this file is in, with a + if files were changed since; None without one."""

    def git(*words: str) -> str:
        here = Path(__file__).parent
        done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        is_tracked = git("ls-files", Path(__file__).name)
        return git("describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*") if is_tracked else None
    except (OSError, subprocess.SubprocessError):
        return None


def _processor() -> str:
    """Its model, as Linux reports it; elsewhere, what Python knows."""
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.exists():
        for line in cpu_info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()  # ARM has no such line, and Python often no word
