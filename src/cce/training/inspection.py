"""Inspection and scoring of saved runs: what `cce inspect` and `cce evaluate` do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from cce.data import PreparedData
from cce.diagnostics import diagnose_collapse, summary
from cce.distributed import Ranks
from cce.embeddings import ClusteredEmbedding
from cce.evaluation import check_metrics, describe_metric
from cce.text import format_table
from cce.training.checkpoint import open_checkpoint
from cce.training.config import TrainConfig
from cce.training.loading import load_model, read_schema
from cce.training.scoring import Scores, group_column, score

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Inspection:
    """What a checkpoint holds."""

    path: Path
    step: int
    best_step: int
    config: dict[str, Any]
    curve: list[dict[str, float]]
    tables: Any  # Footprints
    health: dict[str, dict[str, Any]]  # by table: entropies, dead rows, verdict
    num_params: int  # of the whole model
    damage: list[str]  # checkpoints that were passed over, and why

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return vars(self) | {"path": str(self.path), "tables": self.tables.to_dict()}

    def __str__(self) -> str:
        lines = [f"checkpoint: {self.path}", f"step {self.step:,}; model of {self.num_params:,} params", ""]
        lines += [str(self.tables), ""]
        if self.health:
            rows = [(name, *_health_row(found)) for name, found in self.health.items()]
            lines += [format_table(("table", "H1", "H2", "dead rows", "verdict"), rows), ""]
        if self.curve:
            lines += [_curve_table(self.curve[-6:]), f"best: step {self.best_step:,}", ""]
        defaults = vars(TrainConfig(data="", method="full"))
        given = {name: value for name, value in self.config.items() if defaults.get(name) != value}
        return "\n".join([*lines, "options: " + ", ".join(f"{name}={value}" for name, value in given.items())])


@dataclass(frozen=True)
class Evaluation:
    """The scores of a checkpoint on a split."""

    path: Path
    num_rows: int
    scores: Scores
    damage: list[str]  # checkpoints that were passed over, and why


def inspect_checkpoint(path: Path, *, model: str | None = None, trust_model: bool = False) -> Inspection:
    """The newest whole checkpoint of a run, or the checkpoint itself, and what it holds.

    model, trust_model: code that is not of this package is run only if it is given again, or trusted.
    """
    checkpoint, damage = open_checkpoint(path)
    config, made = load_model(checkpoint, model=model, trust_model=trust_model)
    health = {}
    for name, table in made.named_modules():
        if isinstance(table, ClusteredEmbedding) and table.can_cluster:
            found = diagnose_collapse(table, generator=torch.Generator().manual_seed(config.seed))
            dead = {"dead_rows": sum(found.dead_rows), "num_rows": found.num_rows}
            health[name] = {"entropies": found.entropies, "golden": found.golden, **dead, "verdict": found.verdict}
    return Inspection(
        path=checkpoint.path,
        step=checkpoint.step,
        best_step=checkpoint.best_step,
        config=checkpoint.get("config", dict),
        curve=checkpoint.get("curve", list),
        tables=summary(made),
        health=health,
        num_params=sum(parameter.numel() for parameter in made.parameters()),
        damage=damage,
    )


def evaluate_checkpoint(
    path: Path,
    data: Path,
    *,
    split: str = "test",
    metrics: list[str] | None = None,
    group_by: str | None = None,
    batch_size: int = 16_384,
    streaming: bool = False,
    model: str | None = None,
    trust_model: bool = False,
) -> Evaluation:
    """The scores of a split by a checkpoint; of a run, by its best one.

    metrics, group_by: those of the run, unless they are given.
    """
    prepared = PreparedData.open(data)
    rows = prepared.num_rows(split)
    if not rows:
        raise ValueError(f"split must have rows, got {split!r} with none.")
    checkpoint, damage = open_checkpoint(path, best=True)
    if read_schema(checkpoint) != prepared.schema:
        raise ValueError(f"data must have the columns and ids that the model was trained on, but {data} has others.")
    config, made = load_model(checkpoint, model=model, trust_model=trust_model)
    device = Ranks().device(config.device)
    metrics, group_by = chosen_metrics(config, metrics, group_by)
    groups = None if group_by is None else group_column(prepared.schema, group_by)
    loader = prepared.loader(split, batch_size=batch_size, shuffle=False)
    scores = score(made.to(device), loader, metrics, device=device, groups=groups, streaming=streaming)
    return Evaluation(checkpoint.path, rows, scores, damage)


def chosen_metrics(
    config: TrainConfig, metrics: list[str] | None, group_by: str | None
) -> tuple[list[str], str | None]:
    """The metrics and the feature to group by: what is given, and for the rest what the run had."""
    if metrics is None:
        metrics, group_by = config.metrics, group_by or config.group_by
    elif group_by is None and any(describe_metric(name).by_group for name in metrics):
        group_by = config.group_by
    check_metrics(metrics, group_by=group_by)
    return metrics, group_by


def _curve_table(curve: list[dict[str, float]]) -> str:
    """A line for each validation, with all its scores."""
    infos = [describe_metric(name) for name in curve[-1] if name not in ("step", "epoch")]
    rows = [
        (f"{c['step']:,}", f"{c['epoch']}", *(info.format(c.get(info.name), digits=5) for info in infos)) for c in curve
    ]
    return format_table(("step", "epoch", *(f"validation {info.title}" for info in infos)), rows)


def _health_row(found: dict[str, Any]) -> tuple[str, ...]:
    entropies = [f"{value:.2f}" for value in found["entropies"]]
    return (*entropies, *[""] * (2 - len(entropies)), f"{found['dead_rows']:,}", found["verdict"])
