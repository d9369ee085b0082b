"""The demonstration: one DLRM, three kinds of table, the same click log; `cce` in several sizes from one training.

The log has hidden clusters, so it is known what can be learned: hashing mixes ids of different clusters for good,
while `cce` finds out which ids belong together.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cce.checks import check_range
from cce.data import MANIFEST, SyntheticConfig, prepare_synthetic
from cce.records import RunRecord, write_records
from cce.text import format_bytes, format_ratio, format_table
from cce.training import TrainConfig, Trainer, finalize_run

DATA, RECORDS = "clicks", "records.jsonl"
RUNS = ("full", "cce", "hash")
MIN_ROWS = 100  # below, a score says nothing
HEADERS = ("table", "bytes", "fewer", "test BCE", "test AUC", "seconds")


@dataclass(frozen=True)
class DemoConfig:
    """The demonstration's sizes; the defaults take about a minute on two cores."""

    num_rows: int = 300_000  # of which a tenth is for validation, and another for the test
    vocabulary_sizes: tuple[int, ...] = (20_000, 5_000, 1_000, 100)
    num_clusters: int = 16
    num_dense: int = 4
    embedding_dim: int = 16
    bits: tuple[int, ...] = (4, 8, 16)  # of pointers of an id, at most
    epochs: int = 4
    batch_size: int = 1024
    lr: float = 0.005
    seed: int = 0

    def __post_init__(self) -> None:
        check_range("num_rows", self.num_rows, MIN_ROWS, 2**31)
        check_range("epochs", self.epochs, 1, 2**31)
        for bits in self.bits:
            check_range("bits", bits, 1, 129)
        check_range("seed", self.seed, 0, 2**63)


def run_demo(config: DemoConfig, out: Path, *, progress: bool = True) -> tuple[list[RunRecord], float]:
    """Prepare a data set, train full tables, `cce` and `hash` with the bytes of the median size of `cce`, all in `out`.

    Gives a record for each table and size, also written to `records.jsonl`, and the BCE of the oracle, which knows the
    clusters.
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

    def train(method: str, **options: Any) -> RunRecord:
        return Trainer(_train_config(config, out, method, **options), out / method, progress=progress).run()

    full, first = train("full"), train("cce", bits=float(config.bits[0]), refits=0)
    more = [finalize_run(out / "cce", bits=float(bits), progress=progress) for bits in config.bits[1:]]
    small = [first, *more]
    hashed = train("hash", nbytes=sorted(record.nbytes for record in small)[len(small) // 2])
    records = [full, *small, hashed]
    write_records(records, out / RECORDS)
    return records, manifest["oracle_bce"]


def demo_table(records: Sequence[RunRecord], oracle_bce: float) -> str:
    """The size and scores of each table; the first record is the full table."""
    rows, trained = [], set()
    for record in records:
        seconds = record.seconds_by_part["finalize"] if record.method in trained else record.seconds
        trained.add(record.method)  # a second size is only finalized
        bits = f", {record.config['bits']:.0f} bits an id" if record.config.get("bits") else ""
        rows.append(
            (
                f"{record.method}{bits}",
                format_bytes(record.nbytes),
                format_ratio(records[0].nbytes / record.nbytes),
                f"{record.scores['bce']:.4f}",
                f"{record.scores['auc']:.4f}",
                f"{seconds:.1f}",
            )
        )
    rows.append(("(oracle)", "", "", f"{oracle_bce:.4f}", "", ""))
    return format_table(HEADERS, rows)


def _train_config(config: DemoConfig, out: Path, method: str, **options: Any) -> TrainConfig:
    return TrainConfig(
        data=str(out / DATA),
        model="dlrm",
        model_options={"bottom": [64, 32], "top": [64, 32]},
        method=method,
        embedding_dim=config.embedding_dim,
        epochs=config.epochs,
        batch_size=config.batch_size,
        lr=config.lr,
        validations_per_epoch=2,
        seed=config.seed,
        threads=1,  # networks this small gain nothing from more, and lose much where other programs run
        **options,
    )


def _clear(out: Path) -> None:
    """Remove what an earlier demonstration left, and nothing else."""
    for name, sign in {DATA: MANIFEST, **dict.fromkeys(RUNS, "config.toml")}.items():
        if (out / name / sign).exists():
            shutil.rmtree(out / name)
