"""What a finished run leaves: its best model, and its record, with where it ran."""

from __future__ import annotations

import math
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from cce.collection import readable_path
from cce.diagnostics import gradient_nbytes, summary
from cce.distributed import broadcast
from cce.records import RunRecord
from cce.training.building import build_model
from cce.training.checkpoint import read_best
from cce.version import __version__
from cce.workers import num_cores

if TYPE_CHECKING:
    from cce.footprint import Footprint, Footprints
    from cce.run_folder import RunFolder
    from cce.training.scoring import Scores
    from cce.training.session import Session
    from cce.training.trainer import Trainer


def best_model(session: Session, folder: RunFolder) -> tuple[nn.Module, int, list[str]]:
    """The model at the best validation whose checkpoint is whole, its step, and what is wrong with better ones.

    The model as it is now if there is no such checkpoint.
    """
    if session.stopping.best_step < 0:
        return session.model, -1, []
    found: Any = None
    if session.ranks.is_main:
        checkpoint, damage = read_best(
            folder.checkpoints, session.stopping.best_step, session.curve, session.config.best_by
        )
        found = (None if checkpoint is None else (checkpoint.model, checkpoint.step), damage)
    best, damage = broadcast(found, session.ranks)
    if best is None:
        return session.model, session.step, damage
    model = build_model(session.config, session.data.schema)
    model.load_state_dict(best[0])
    return model.to(session.device), best[1], damage


def go_back_to_best(session: Session, folder: RunFolder) -> None:
    """Let the model be that of the best validation, if it is not."""
    if session.stopping.best_step not in (-1, session.step):
        model, _, _ = best_model(session, folder)
        session.model.load_state_dict(model.state_dict())


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
        curve_before_finalize=_curve_before_finalize(lines),
    )
    if session.ranks.is_main:
        folder.write_record(record)
    return record


def _curve_before_finalize(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """The validations that the log has of tables before their int8 rows became pointers."""
    end = next((index for index, line in enumerate(lines) if line["kind"] == "finalize"), 0)
    return [
        {name: math.nan if value is None else value for name, value in line.items() if name != "kind"}
        for line in lines[:end]
        if line["kind"] == "validation"
    ]


def _tables(tables: Footprints, trainer: Trainer) -> tuple[Footprint, ...]:
    """The tables of the best model, with what they held besides in training, as the last model's tables know it."""
    session, trained = trainer.session, trainer.finalizing.trained_nbytes
    modules = {readable_path(name): module for name, module in session.model.named_modules()}
    optimizers = dict.fromkeys(modules, 0)
    for optimizer in session.optimizers:
        for table in summary(session.model, optimizer).tables:
            optimizers[table.name] += table.optimizer_nbytes
    found = []
    for table in tables.tables:
        held = trained.get(table.name) or {
            "codes": 0,
            "gradients": gradient_nbytes(modules[table.name], sparse=session.config.sparse),
            "optimizer": optimizers[table.name],
        }
        codes, gradients = held["codes"], held["gradients"]
        found.append(replace(table, codes_nbytes=codes, gradient_nbytes=gradients, optimizer_nbytes=held["optimizer"]))
    return tuple(found)


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
    here = Path(__file__).parent
    try:
        head = _git(here, "rev-parse", "--short=12", "HEAD")
        tracked = _git(here, "ls-files", Path(__file__).name)
        return (head + ("+" if _git(here, "status", "--porcelain", "-uno") else "")) if tracked else None
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


def _processor() -> str:
    """Its model, as Linux reports it; elsewhere, what Python knows."""
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.exists():
        for line in cpu_info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()  # ARM has no such line, and Python often no word
