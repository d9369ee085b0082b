"""The demonstration: one DLRM, three kinds of table, the same click log and budgets.

The log has hidden clusters, so it is known what can be learned: hashing mixes ids of different clusters for good,
while clustering can find out which ids belong together.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cce.checks import check_range
from cce.data import MANIFEST, SyntheticConfig, prepare_synthetic
from cce.files import write_atomic
from cce.records import RunRecord, write_records
from cce.text import format_bytes, format_markdown, format_ratio, format_table
from cce.training import TrainConfig, Trainer

METHODS = ("hash", "cce")  # beside the full table, at every budget
DATA = "clicks"
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
    caps: tuple[int, ...] = (500, 2_000, 8_000)  # most parameters of a table
    epochs: int = 4
    batch_size: int = 1024
    lr: float = 0.005
    seed: int = 0

    def __post_init__(self) -> None:
        check_range("num_rows", self.num_rows, MIN_ROWS, 2**31)
        check_range("epochs", self.epochs, 1, 2**31)
        for cap in self.caps:
            check_range("caps", cap, 1, 2**31)
        check_range("seed", self.seed, 0, 2**63)


def run_demo(config: DemoConfig, out: Path, *, progress: bool = True) -> tuple[list[RunRecord], float]:
    """Prepare a data set and train with each kind of table at each budget, all in `out`.

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
    manifest = prepare_synthetic(out / DATA, sizes, progress=progress)
    tables = [("full", None), *((method, cap) for method in METHODS for cap in config.caps)]
    runs = (
        Trainer(_train_config(method, cap, config, out), out / _name(method, cap), progress=progress)
        for method, cap in tables
    )
    return [run.run() for run in runs], manifest["oracle_bce"]


def demo_table(records: Sequence[RunRecord], oracle_bce: float, *, markdown: bool = False) -> str:
    """The size and scores of each table; the first record is the full table."""
    full = records[0]
    rows = [
        (
            record.method,
            f"{record.num_params:,}",
            format_ratio(full.num_params / record.num_params),
            format_bytes(record.nbytes),
            format_ratio(full.nbytes / record.nbytes),
            f"{record.scores['bce']:.4f}",
            f"{record.scores['auc']:.4f}",
            f"{record.samples_per_second:,.0f}",
            f"{record.seconds:.1f}",
        )
        for record in records
    ]
    rows.append(("(oracle)", "", "", "", "", f"{oracle_bce:.4f}", "", "", ""))
    return (format_markdown if markdown else format_table)(HEADERS, rows)


def write_report(records: Sequence[RunRecord], oracle_bce: float, folder: Path) -> Path:
    """Write `report.md` and `records.jsonl` to `folder`; return the report's path."""
    write_records(records, folder / "records.jsonl")
    config = ", ".join(f"{name} {value}" for name, value in records[-1].config.items() if value not in (None, {}))
    names = [_name(record.method, record.config.get("cap")) for record in records]
    text = (
        "# Demonstration: hidden clusters\n\n"
        f"{demo_table(records, oracle_bce, markdown=True)}\n\n"
        "The score of a table is that of its best validation. The oracle knows the clusters and the probabilities.\n\n"
        "## Best validation BCE of each epoch\n\n"
        f"{format_markdown(('epoch', *names), _epochs(records))}\n\n"
        f"## Settings of the last run\n\n{config}\n"
    )
    write_atomic(folder / "report.md", text)
    return folder / "report.md"


def _epochs(records: Sequence[RunRecord]) -> list[tuple[str, ...]]:
    """The best validation of each epoch, of each record; nothing where training had stopped."""
    last = int(max(scores["epoch"] for record in records for scores in record.curve))
    rows = []
    for epoch in range(1, last + 1):
        best = [min((s["bce"] for s in record.curve if s["epoch"] == epoch), default=None) for record in records]
        rows.append((f"{epoch}", *("" if bce is None else f"{bce:.4f}" for bce in best)))
    return rows


def _name(method: str, cap: int | None) -> str:
    return method if method == "full" else f"{method}-{cap}"


def _train_config(method: str, cap: int | None, config: DemoConfig, out: Path) -> TrainConfig:
    return TrainConfig(
        data=str(out / DATA),
        model="dlrm",
        model_options={"bottom": [64, 32], "top": [64, 32]},
        method=method,
        cap=cap,
        embedding_dim=config.embedding_dim,
        epochs=config.epochs,
        batch_size=config.batch_size,
        optimizer="adam",
        lr=config.lr,
        validations_per_epoch=2,
        seed=config.seed,
        threads=1,  # networks this small gain nothing from more, and lose much where other programs run
    )


def _clear(out: Path) -> None:
    """Take away what an earlier demonstration left, and nothing else."""
    signs = {DATA: MANIFEST, "full": "config.toml"} | {f"{method}-*": "config.toml" for method in METHODS}
    for pattern, sign in signs.items():
        for folder in out.glob(pattern):
            if (folder / sign).exists():
                shutil.rmtree(folder)
