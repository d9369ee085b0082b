"""The demonstration: one small recommender, three kinds of table, the same data and budget.

The data has planted clusters, so it is known what can be learned: hashing mixes ids of different clusters for good,
while clustering can find out which ids belong together.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from cce.checks import check_range
from cce.data import PlantedClusters, Sample
from cce.diagnostics import summary
from cce.embeddings import create_embedding
from cce.evaluation import auc, binary_cross_entropy
from cce.models import GMF
from cce.records import RunRecord, write_records, write_whole
from cce.text import format_bytes, format_markdown, format_ratio, format_table
from cce.training import ClusterSchedule

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

METHODS = ("full", "hash", "cce")
MIN_ROWS = 100  # below, a score says nothing
HEADERS = ("table", "params", "fewer", "bytes", "fewer", "test BCE", "test AUC", "seconds")


@dataclass(frozen=True)
class DemoConfig:
    """The demonstration's sizes; the defaults take about a minute on two cores."""

    num_users: int = 20_000
    num_items: int = 5_000
    num_rows: int = 400_000
    num_clusters: int = 32
    embedding_dim: int = 16
    cap: int = 8_000  # trainable numbers of a table at most
    num_epochs: int = 6
    num_clusterings: int = 4  # at the ends of the first epochs
    batch_size: int = 1024
    learning_rate: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        check_range("num_rows", self.num_rows, MIN_ROWS, 2**31)
        check_range("num_epochs", self.num_epochs, 1, 2**31)
        check_range("cap", self.cap, 1, 2**31)
        check_range("seed", self.seed, 0, 2**63)


class Recommender(nn.Module):
    """A table for each feature, and a model on top."""

    def __init__(self, tables: Sequence[nn.Module], model: nn.Module) -> None:
        super().__init__()
        self.tables = nn.ModuleList(tables)
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        """Logits `(batch)` of ids `(batch, features)`."""
        vectors = [table(column) for table, column in zip(self.tables, ids.unbind(1), strict=True)]
        return self.model(torch.stack(vectors, dim=1))  # type: ignore[no-any-return]


def run_demo(config: DemoConfig, *, progress: bool = True) -> tuple[list[RunRecord], float]:
    """A record for each kind of table, and the BCE of the oracle, which knows the clusters."""
    g = torch.Generator().manual_seed(config.seed)
    clicks = PlantedClusters((config.num_users, config.num_items), num_clusters=config.num_clusters, generator=g)
    train = clicks.sample(config.num_rows, generator=g)
    test = clicks.sample(config.num_rows // 8, generator=g)
    models = {
        method: _recommender(method, config) for method in METHODS
    }  # all of them first: a wrong cap shows at once
    records = [_run(method, model, config, train, test, progress=progress) for method, model in models.items()]
    return records, test.oracle_bce


def demo_table(records: Sequence[RunRecord], oracle_bce: float, *, markdown: bool = False) -> str:
    """What each table weighs and scores; the first record is the full table."""
    full = records[0]
    rows = [
        (
            record.method,
            f"{record.num_params:,}",
            format_ratio(full.num_params / record.num_params),
            format_bytes(record.nbytes),
            format_ratio(full.nbytes / record.nbytes),
            f"{record.bce:.4f}",
            f"{record.auc:.4f}",
            f"{record.seconds:.1f}",
        )
        for record in records
    ]
    rows.append(("(oracle)", "", "", "", "", f"{oracle_bce:.4f}", "", ""))
    return (format_markdown if markdown else format_table)(HEADERS, rows)


def write_report(records: Sequence[RunRecord], oracle_bce: float, folder: Path) -> Path:
    """`report.md` and `records.jsonl` in `folder`; gives the report's path."""
    write_records(records, folder / "records.jsonl")
    config = ", ".join(f"{name} {value}" for name, value in records[0].config.items())
    curves = [
        (f"{epoch + 1}", *(f"{record.curve[epoch]['bce']:.4f}" for record in records))
        for epoch in range(len(records[0].curve))
    ]
    text = (
        "# Demonstration: planted clusters\n\n"
        f"{demo_table(records, oracle_bce, markdown=True)}\n\n"
        "The score of a table is that of its best epoch. The oracle knows the clusters and the probabilities.\n\n"
        "## Test BCE after each epoch\n\n"
        f"{format_markdown(('epoch', *(record.method for record in records)), curves)}\n\n"
        f"## Settings\n\n{config}\n"
    )
    write_whole(folder / "report.md", text)
    return folder / "report.md"


def _run(
    method: str, model: Recommender, config: DemoConfig, train: Sample, test: Sample, *, progress: bool
) -> RunRecord:
    g = torch.Generator().manual_seed(config.seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    num_batches = -(-config.num_rows // config.batch_size)
    steps = [num_batches * (epoch + 1) for epoch in range(config.num_clusterings)]
    schedule = ClusterSchedule(model, optimizer, at=steps, seed=config.seed, progress=progress)
    started, curve = time.perf_counter(), []
    for epoch in range(config.num_epochs):
        batches = torch.split(torch.randperm(config.num_rows, generator=g), config.batch_size)
        shown = tqdm(batches, desc=f"{method:>4}, epoch {epoch + 1}", leave=False, disable=None if progress else True)
        for rows in shown:
            _train_step(model, optimizer, train.ids[rows], train.labels[rows])
            schedule.step()
        curve.append(_evaluate(model, test))
    best = min(curve, key=lambda scores: scores["bce"])
    weights = summary(model).total
    return RunRecord(
        method=method,
        seed=config.seed,
        num_params=weights.num_params,
        nbytes=weights.nbytes,
        bce=best["bce"],
        auc=best["auc"],
        seconds=time.perf_counter() - started,
        config=asdict(config),
        curve=curve,
    )


def _recommender(method: str, config: DemoConfig) -> Recommender:
    generator = torch.Generator().manual_seed(config.seed)
    tables = []
    for num_ids in (config.num_users, config.num_items):
        budget = None if method == "full" else config.cap
        tables.append(create_embedding(method, num_ids, config.embedding_dim, num_params=budget, generator=generator))
    return Recommender(tables, GMF(config.embedding_dim))


def _train_step(model: nn.Module, optimizer: torch.optim.Optimizer, ids: Tensor, labels: Tensor) -> None:
    loss = functional.binary_cross_entropy_with_logits(model(ids), labels)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


@torch.no_grad()
def _evaluate(model: nn.Module, test: Sample) -> dict[str, float]:
    logits = torch.cat([model(ids) for ids in torch.split(test.ids, 1 << 16)])
    return {"bce": binary_cross_entropy(logits, test.labels), "auc": auc(logits, test.labels)}
