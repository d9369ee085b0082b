"""Saved runs looked at, and scored: what `cce inspect` and `cce evaluate` do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from cce.data import PreparedData
from cce.diagnostics import collapse, summary
from cce.distributed import Ranks
from cce.embeddings import ClusteredEmbedding
from cce.schema import Schema
from cce.text import format_table
from cce.training.building import load_model
from cce.training.checkpoint import find_checkpoint, read_checkpoint
from cce.training.config import TrainConfig
from cce.training.scoring import Scores, score

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
    tables: Any  # diagnostics.Summary
    health: dict[str, dict[str, Any]]  # by table: entropies, dead rows, verdict
    num_params: int  # of the whole model

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return vars(self) | {"path": str(self.path), "tables": self.tables.to_dict()}

    def __str__(self) -> str:
        lines = [f"checkpoint: {self.path}", f"step {self.step:,}; model of {self.num_params:,} params", ""]
        lines += [str(self.tables), ""]
        if self.health:
            rows = [(name, *_health_row(facts)) for name, facts in self.health.items()]
            lines += [format_table(("table", "H1", "H2", "dead rows", "verdict"), rows), ""]
        if self.curve:
            rows = [(f"{c['step']:,}", f"{c['epoch']}", f"{c['bce']:.5f}", f"{c['auc']:.5f}") for c in self.curve[-6:]]
            lines += [
                format_table(("step", "epoch", "validation BCE", "AUC"), rows),
                f"best: step {self.best_step:,}",
                "",
            ]
        defaults = vars(TrainConfig(data="", method="full"))
        told = {name: value for name, value in self.config.items() if defaults.get(name) != value}
        return "\n".join([*lines, "options: " + ", ".join(f"{name}={value}" for name, value in told.items())])


def inspect_checkpoint(path: Path) -> Inspection:
    """The newest whole checkpoint of a run, or the checkpoint itself, and what it holds."""
    found = find_checkpoint(path)
    checkpoint = read_checkpoint(found)
    config, model = load_model(checkpoint)
    health = {}
    for name, table in model.named_modules():
        if isinstance(table, ClusteredEmbedding) and table.can_cluster:
            facts = collapse(table, generator=torch.Generator().manual_seed(config.seed))
            dead = {"dead_rows": sum(facts.dead_rows), "num_rows": facts.num_rows}
            health[name] = {"entropies": facts.entropies, "golden": facts.golden, **dead, "verdict": facts.verdict}
    return Inspection(
        path=found,
        step=checkpoint.step,
        best_step=checkpoint.state["stopping"]["best_step"],
        config=checkpoint.state["config"],
        curve=checkpoint.state["curve"],
        tables=summary(model),
        health=health,
        num_params=sum(parameter.numel() for parameter in model.parameters()),
    )


def evaluate_checkpoint(
    path: Path, data: Path, *, split: str = "test", batch_size: int = 16_384, streaming: bool = False
) -> tuple[Path, int, Scores]:
    """The checkpoint that was scored (of a run, the best one), the number of rows, and their scores."""
    prepared = PreparedData.open(data)
    rows = prepared.num_rows(split)
    if not rows:
        raise ValueError(f"split must have rows, got {split!r} with none.")
    found = find_checkpoint(path, best=True)
    checkpoint = read_checkpoint(found)
    if Schema.from_dict(checkpoint.state["schema"]) != prepared.schema:
        raise ValueError(f"data must have the columns and ids that the model was trained on, but {data} has others.")
    config, model = load_model(checkpoint)
    device = Ranks().device(config.device)
    loader = prepared.loader(split, batch_size=batch_size, shuffle=False)
    return found, rows, score(model.to(device), loader, device=device, streaming=streaming)


def _health_row(facts: dict[str, Any]) -> tuple[str, ...]:
    entropies = [f"{value:.2f}" for value in facts["entropies"]]
    return (*entropies, *[""] * (2 - len(entropies)), f"{facts['dead_rows']:,}", facts["verdict"])
