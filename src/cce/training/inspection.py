"""Saved runs, looked at and checked: what `cce inspect` and `cce verify` do."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cce.budget import FULL
from cce.data import Verification
from cce.diagnostics import summary
from cce.embeddings import Embedding
from cce.evaluation import describe_metric
from cce.models import MODELS
from cce.run_folder import CONFIG, RunFolder
from cce.text import format_table
from cce.training.checkpoint import Checkpoint, checkpoint_path, list_checkpoints, open_checkpoint, read_checkpoint
from cce.training.config import TrainConfig
from cce.training.model import load_model
from cce.training.monitoring import peaks_line
from cce.training.phases import sizes_table
from cce.training.saving import read_options
from cce.training.session import row_counters
from cce.training.stopping import non_finite_parameter

BAD_FILE = (OSError, TypeError, ValueError)


@dataclass(frozen=True)
class Inspection:
    """What a checkpoint holds."""

    path: Path
    step: int
    best_step: int
    config: dict[str, Any]
    curve: list[dict[str, float]]
    tables: Any  # Footprints
    ids: dict[str, dict[str, int]]  # by feature: ids with rows, and those that came and went
    num_params: int  # of the whole model
    sizes: list[dict[str, Any]]  # that there were to choose from when tables were finalized
    peak_nbytes: dict[str, int]  # measured, by phase
    damage: list[str]  # checkpoints that were passed over, and why

    def to_dict(self) -> dict[str, Any]:
        return vars(self) | {"path": str(self.path), "tables": self.tables.to_dict()}

    def __str__(self) -> str:
        lines = [f"checkpoint: {self.path}", f"step {self.step:,}; model of {self.num_params:,} params", ""]
        lines += [str(self.tables), ""]
        if self.ids:
            lines += [_ids_table(self.ids), ""]
        if self.sizes:
            lines += [sizes_table(self.sizes), ""]
        if self.curve:
            best = [f"best: step {self.best_step:,}"] if self.best_step >= 0 else []
            lines += [_curve_table(self.curve[-6:]), *best, ""]
        if self.peak_nbytes:
            lines += [peaks_line(self.peak_nbytes), ""]
        defaults = vars(TrainConfig(data="", method=FULL))
        given = {name: value for name, value in self.config.items() if defaults.get(name) != value}
        return "\n".join([*lines, "options: " + ", ".join(f"{name}={value}" for name, value in given.items())])


def inspect_checkpoint(path: Path, *, model: str | None = None) -> Inspection:
    """The newest whole checkpoint of a run, or the checkpoint itself, and what it holds.

    model: the model again, as FILE.py:NAME, if it is your own. No other code is run.
    """
    checkpoint, damage = open_checkpoint(path)
    _, made = load_model(checkpoint, model=model)
    of_tables = {id(p) for table in made.modules() if isinstance(table, Embedding) for p in table.parameters()}
    rest = sum(parameter.numel() for parameter in made.parameters() if id(parameter) not in of_tables)
    return Inspection(
        path=checkpoint.path,
        step=checkpoint.step,
        best_step=checkpoint.best_step,
        config=checkpoint.get("config", dict),
        curve=checkpoint.get("curve", list),
        tables=summary(made),
        ids=row_counters(made),
        num_params=summary(made).num_params + rest,
        sizes=checkpoint.get("phases", dict)["finalize"]["sizes"],
        peak_nbytes=checkpoint.get("peak_nbytes", dict),
        damage=damage,
    )


def _ids_table(ids: dict[str, dict[str, int]]) -> str:
    names = list(next(iter(ids.values())))
    rows = [(feature, *(f"{own[name]:,}" for name in names)) for feature, own in ids.items()]
    return format_table(("ids with rows, and those that came and went", *names), rows, num_left=1)


def _curve_table(curve: list[dict[str, float]]) -> str:
    infos = [describe_metric(name) for name in curve[-1] if name not in ("step", "epoch")]
    rows = [
        (f"{c['step']:,}", f"{c['epoch']}", *(info.format(c.get(info.name), digits=5) for info in infos)) for c in curve
    ]
    return format_table(("step", "epoch", *(f"validation {info.title}" for info in infos)), rows)


def verify_run(folder: Path) -> Verification:
    """Read all of a run. A run that is not finished, or whose checkpoints were removed as it is, has no problem."""
    run = RunFolder(folder)
    if not run.is_begun:
        raise FileNotFoundError(f"{folder} must be the folder of a run, got no {CONFIG} there.")
    lines, torn = run.scan_log()
    problems: list[str] = []
    whole: list[Checkpoint] = []

    @contextmanager
    def noted() -> Iterator[None]:
        try:
            yield
        except BAD_FILE as error:
            problems.append(str(error))

    with noted():
        read_options(run)
    with noted():
        if run.is_finished:  # one that is not has no record, which is no problem
            run.read_record()
    problems += torn
    for path in list_checkpoints(run.checkpoints):
        with noted():
            checkpoint = read_checkpoint(path)
            whole.append(checkpoint)
            problems += _checkpoint_problems(checkpoint)
    with noted():
        best = whole[-1].best_step if whole else -1
        if best >= 0 and best not in [checkpoint.step for checkpoint in whole]:
            path = checkpoint_path(run.checkpoints, best)
            problems.append(f"{path}, the best checkpoint, must be whole: the newest would replace it.")
    return Verification("run", str(folder), {"checkpoints": len(whole), "lines of the log": len(lines)}, problems)


def _checkpoint_problems(checkpoint: Checkpoint) -> Iterator[str]:
    """The content of a checkpoint whose checksums are right. A model from a user's file is not built."""
    named = checkpoint_path(checkpoint.path.parent, checkpoint.step).name
    if checkpoint.path.name != named:
        yield f"{checkpoint.path} must be named after its step, {named}."
    checkpoint.get("curve", list)
    if checkpoint.get("config", dict).get("model", "dlrm") in MODELS:
        _, model = load_model(checkpoint)
        name = non_finite_parameter(model)
        if name is not None:
            yield f"{checkpoint.path}: {name} must be finite, got NaN or infinity."
