"""The demonstration: one DLRM, three kinds of table, the same rows; `cce` in several sizes from one training.

The rows are ratings of MovieLens, if the folder `CCE_DATA` has them; otherwise flights, which come with the package and
are prepared with pyarrow; without pyarrow, clicks with hidden clusters, of which it is known what can be learned.
"""

import os
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cce.checks import check_range
from cce.data import MANIFEST, PreparedData, prepare, write_flights
from cce.records import RunRecord, write_records
from cce.text import format_bytes, format_ratio, format_table
from cce.training import TrainConfig, Trainer, finalize_run

RATINGS = "ml1m.parquet"  # in CCE_DATA: label, and user and film as c0 and c1
RECORDS = "records.jsonl"
NUM_ROWS = 300_000  # of a click log, of which a tenth is for validation, and another for the test
RECIPES: dict[str, tuple[tuple[int, ...], int, float]] = {  # of each data set: bits per id; epochs; learning rate
    "ratings": ((8, 16, 32), 2, 0.001),
    "flights": ((4, 8, 16), 1, 0.003),
    "clicks": ((4, 8, 16), 4, 0.005),
}
HEADERS = ("table", "bytes", "fewer", "test BCE", "test AUC", "seconds")


def run_demo(out: Path, *, num_rows: int | None = None, progress: bool = True) -> tuple[list[RunRecord], float | None]:
    """Prepare a data set, train full tables, `cce` and `hash` with the bytes of the median size of `cce`, all in `out`.

    Returns a record for each table and size, also written to `records.jsonl`, and the BCE of an oracle that knows the
    clusters; None for real rows. num_rows: of synthetic clicks, instead of real rows.
    """
    for name in (*RECIPES, "full", "cce", "hash"):
        if (out / name / (MANIFEST if name in RECIPES else "config.toml")).exists():  # left by an earlier demonstration
            shutil.rmtree(out / name)
    name, data = _prepare(out, num_rows, progress=progress)
    sizes, epochs, lr = RECIPES[name]

    def train(method: str, **options: Any) -> RunRecord:
        config = TrainConfig(
            data=str(data.path),
            model="dlrm",
            model_options={"bottom": [64, 32], "top": [64, 32], "concatenate": True},
            method=method,
            embedding_dim=16,
            epochs=epochs,
            batch_size=1024,
            lr=lr,
            validations_per_epoch=2,
            threads=1,  # networks this small gain nothing from more, and lose much where other programs run
            **options,
        )
        return Trainer(config, out / method, progress=progress).run()

    full, first = train("full"), train("cce", bits=float(sizes[0]), refits=0)
    small = [first, *(finalize_run(out / "cce", bits=float(bits), progress=progress) for bits in sizes[1:])]
    hashed = train("hash", nbytes=sorted(record.nbytes for record in small)[len(small) // 2])
    records = [full, *small, hashed]
    write_records(records, out / RECORDS)
    return records, data.manifest.get("oracle_bce")


def _prepare(out: Path, num_rows: int | None, *, progress: bool) -> tuple[str, PreparedData]:
    """The best rows at hand, prepared, and the name of their recipe."""
    ratings = Path(os.environ.get("CCE_DATA", "")) / RATINGS
    if num_rows is None and find_spec("pyarrow"):
        if "CCE_DATA" in os.environ and ratings.is_file():
            columns: dict[str, Any] = {"label": "label", "categorical": ["c0", "c1"], "missing": ["-1"]}
            return "ratings", prepare(ratings, out / "ratings", progress=progress, **columns)
        out.mkdir(parents=True, exist_ok=True)
        write_flights(out / "flights.csv")
        raw, data = out / "flights.csv", out / "flights"
        return "flights", prepare(raw, data, label="late", categorical="*", progress=progress)
    sizes: dict[str, Any] = {"num_rows": NUM_ROWS if num_rows is None else num_rows, "num_clusters": 16}
    check_range("num_rows", sizes["num_rows"], 100, 2**31)  # below, a score says nothing
    return "clicks", prepare(None, out / "clicks", kind="synthetic", progress=progress, **sizes)


def demo_table(records: Sequence[RunRecord], oracle_bce: float | None) -> str:
    """The size and scores of each table; the first record is the full table."""
    rows, trained = [], set()
    for record in records:
        seconds = record.seconds_by_part["finalize"] if record.method in trained else record.seconds
        trained.add(record.method)  # a second size is only finalized
        bits = f", {record.config['bits']:.0f} bits per id" if record.config.get("bits") else ""
        name, scores = f"{record.method}{bits}", (f"{record.scores[name]:.4f}" for name in ("bce", "auc"))
        fewer = format_ratio(records[0].nbytes / record.nbytes)
        rows.append((name, format_bytes(record.nbytes), fewer, *scores, f"{seconds:.1f}"))
    if oracle_bce is not None:
        rows.append(("(oracle)", "", "", f"{oracle_bce:.4f}", "", ""))
    return format_table(HEADERS, rows)
