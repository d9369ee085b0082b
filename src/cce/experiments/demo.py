"""The demonstration: one DLRM, three kinds of table, the same click log and budget.

The log has planted clusters, so it is known what can be learned: hashing mixes ids of different clusters for good,
while clustering can find out which ids belong together.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cce.checks import check_range
from cce.data import SyntheticConfig, prepare_synthetic
from cce.data.manifest import MANIFEST
from cce.records import RunRecord, write_records, write_whole
from cce.text import format_bytes, format_markdown, format_ratio, format_table
from cce.training import TrainConfig, Trainer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

METHODS = ("full", "hash", "cce")
MIN_ROWS = 100  # below, a score says nothing
HEADERS = ("table", "params", "fewer", "bytes", "fewer", "test BCE", "test AUC", "rows/s", "seconds")


@dataclass(frozen=True)
class DemoConfig:
    """The demonstration's sizes; the defaults take about two minutes on two cores."""

    num_rows: int = 300_000  # of which a tenth is for validation, and another for the test
    vocabulary_sizes: tuple[int, ...] = (20_000, 5_000, 1_000, 100)
    num_clusters: int = 16
    num_dense: int = 4
    embedding_dim: int = 16
    cap: int = 8_000  # trainable numbers of a table at most
    epochs: int = 4
    cluster_times: int = 3  # at the ends of the first epochs
    batch_size: int = 1024
    lr: float = 0.005
    seed: int = 0

    def __post_init__(self) -> None:
        check_range("num_rows", self.num_rows, MIN_ROWS, 2**31)
        check_range("epochs", self.epochs, 1, 2**31)
        check_range("cap", self.cap, 1, 2**31)
        check_range("seed", self.seed, 0, 2**63)


def run_demo(config: DemoConfig, out: Path, *, progress: bool = True) -> tuple[list[RunRecord], float]:
    """Prepare a data set and train with each kind of table, all in `out`.

    Gives a record for each, and the BCE of the oracle, which knows the clusters.
    """
    _clear(out)
    sizes = SyntheticConfig(
        num_rows=config.num_rows,
        vocabulary_sizes=config.vocabulary_sizes,
        num_clusters=config.num_clusters,
        num_dense=config.num_dense,
        seed=config.seed,
    )
    manifest = prepare_synthetic(out / "data", sizes, progress=progress)
    runs = (Trainer(_train_config(method, config, out), out / method, progress=progress) for method in METHODS)
    return [run.run() for run in runs], manifest["oracle_bce"]


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
            f"{record.samples_per_second:,.0f}",
            f"{record.seconds:.1f}",
        )
        for record in records
    ]
    rows.append(("(oracle)", "", "", "", "", f"{oracle_bce:.4f}", "", "", ""))
    return (format_markdown if markdown else format_table)(HEADERS, rows)


def write_report(records: Sequence[RunRecord], oracle_bce: float, folder: Path) -> Path:
    """`report.md` and `records.jsonl` in `folder`; gives the report's path."""
    write_records(records, folder / "records.jsonl")
    config = ", ".join(f"{name} {value}" for name, value in records[-1].config.items() if value not in (None, {}))
    text = (
        "# Demonstration: planted clusters\n\n"
        f"{demo_table(records, oracle_bce, markdown=True)}\n\n"
        "The score of a table is that of its best validation. The oracle knows the clusters and the probabilities.\n\n"
        "## Best validation BCE of each epoch\n\n"
        f"{format_markdown(('epoch', *(record.method for record in records)), _epochs(records))}\n\n"
        f"## Settings of the last run\n\n{config}\n"
    )
    write_whole(folder / "report.md", text)
    return folder / "report.md"


def _epochs(records: Sequence[RunRecord]) -> list[tuple[str, ...]]:
    """The best validation of each epoch, of each record; nothing where training had stopped."""
    last = int(max(scores["epoch"] for record in records for scores in record.curve))
    rows = []
    for epoch in range(1, last + 1):
        best = [min((s["bce"] for s in record.curve if s["epoch"] == epoch), default=None) for record in records]
        rows.append((f"{epoch}", *("" if bce is None else f"{bce:.4f}" for bce in best)))
    return rows


def _train_config(method: str, config: DemoConfig, out: Path) -> TrainConfig:
    return TrainConfig(
        data=str(out / "data"),
        model="dlrm",
        model_options={"bottom": [64, 32], "top": [64, 32]},
        method=method,
        cap=None if method == "full" else config.cap,
        embedding_dim=config.embedding_dim,
        epochs=config.epochs,
        batch_size=config.batch_size,
        optimizer="adam",
        lr=config.lr,
        schedule="best-of-10-epochs",
        cluster_times=config.cluster_times,
        validations_per_epoch=2,
        seed=config.seed,
        threads=1,  # networks this small gain nothing from more, and lose much where other programs run
    )


def _clear(out: Path) -> None:
    """Take away what an earlier demonstration left, and nothing else."""
    for name, sign in (("data", MANIFEST), *((method, "config.toml") for method in METHODS)):
        if (out / name / sign).exists():
            shutil.rmtree(out / name)
