"""What a finished run leaves: its best model, and its record."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cce.diagnostics import summary
from cce.distributed import broadcast
from cce.records import RunRecord, write_records
from cce.training.building import build_model
from cce.training.checkpoint import read_best
from cce.training.environment import environment
from cce.training.metrics_log import scan_metrics

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from cce.diagnostics import Summary
    from cce.training.scoring import Scores
    from cce.training.session import Session


def best_model(session: Session, folder: Path) -> tuple[nn.Module, int, list[str]]:
    """The model at the best validation whose checkpoint is whole, its step, and what is wrong with better ones.

    The model as it is now if there is no such checkpoint.
    """
    if session.stopping.best_step < 0:
        return session.model, -1, []
    found: Any = None
    if session.ranks.is_main:
        checkpoint, damage = read_best(folder, session.stopping.best_step, session.curve, session.config.best_by)
        found = (None if checkpoint is None else (checkpoint.model, checkpoint.step), damage)
    best, damage = broadcast(found, session.ranks)
    if best is None:
        return session.model, session.step, damage
    model = build_model(session.config, session.data.schema)
    model.load_state_dict(best[0])
    return model.to(session.device), best[1], damage


def keep_record(
    session: Session, model: nn.Module, scores: Scores, folder: Path, *, name: str = "", series: str = ""
) -> RunRecord:
    """The record of a run, written to `record.jsonl`."""
    ledger, seconds = summary(model), session.stopwatch.seconds
    weights = ledger.total
    record = RunRecord(
        method=session.config.method,
        seed=session.config.seed,
        num_params=weights.num_params,
        nbytes=weights.nbytes,
        scores=scores,
        seconds=sum(seconds.values()),
        config=asdict(session.config),
        curve=session.curve,
        samples_per_second=session.rows_trained / seconds["train"] if "train" in seconds else 0.0,
        seconds_by_part=dict(seconds),
        name=name,
        series=series,
        tables=_tables(ledger, session),
        events=[line for line in scan_metrics(folder / "metrics.jsonl")[0] if line["kind"] == "cluster"],
        environment=environment(),
    )
    if session.ranks.is_main:
        write_records([record], folder / "record.jsonl")
    return record


def _tables(ledger: Summary, session: Session) -> list[dict[str, Any]]:
    """A line for each table of the best model, with the bytes of the optimizer, which knows the last one's tables."""
    trained = {table.name: table.optimizer_nbytes for table in summary(session.model, session.optimizers[0]).tables}
    return [table | {"optimizer_nbytes": trained[table["name"]]} for table in ledger.to_dict()["tables"]]
