"""Records as a sweep leaves them, made by formula: the answers are known, and nothing is trained."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cce.footprint import Footprint
from cce.records import RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

DIM = 16
SIZES = {"C3": 200_000, "C12": 60_000, "C7": 9_000, "C1": 400, "C9": 30}
FULL_BCE = 0.4520
QUALITY = {"cce": 0.0, "hash": 0.0022, "ce-concat": 0.0034, "robe": 0.0028, "dhe": 0.0090}
CAPS = (500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000)
ENVIRONMENT = {"cce": "0.1.0", "commit": "0123456789ab", "python": "3.11.2", "torch": "2.13.0", "cores": 2, "gpu": None}


def ledger(method: str, cap: int | None) -> tuple[Footprint, ...]:
    """The tables under a cap."""
    return tuple(_table(name, ids, method, cap) for name, ids in SIZES.items())


def _table(name: str, ids: int, method: str, cap: int | None) -> Footprint:
    full = ids * DIM
    is_full = cap is None or full <= cap
    params = full if is_full else cap // DIM * DIM
    pointers = 4 * ids if method == "cce" and not is_full else 0
    return Footprint(
        name=f"tables.{name}",
        method="full" if is_full else method,
        num_embeddings=ids,
        embedding_dim=DIM,
        num_params=params,
        codebook_nbytes=4 * params,
        pointer_nbytes=pointers,
        optimizer_nbytes=4 * params,
        full_params=full,
        full_nbytes=4 * full,
    )


def made_record(
    method: str, cap: int | None, seed: int = 0, *, bce: float | None = None, auc: float | None = None, **changes: Any
) -> RunRecord:
    """One run; its BCE falls with the logarithm of the cap unless it is given, and its AUC follows it."""
    tables = ledger(method, cap)
    score = _bce(method, cap, seed) if bce is None else bce
    config = {
        "data": "data/clicks",
        "model": "dlrm",
        "method": method,
        "epochs": 10,
        "seed": seed,
        "embedding_dim": DIM,
    }
    config |= {} if cap is None else {"cap": cap}
    values: dict[str, Any] = {
        "method": method,
        "seed": seed,
        "num_params": sum(table.num_params for table in tables),
        "nbytes": sum(table.nbytes for table in tables),
        "scores": {"bce": score, "auc": 1.152 - 0.8 * score if auc is None else auc},
        "seconds": 100.0 + seed + (cap or 0) / 1000,
        "config": config,
        "curve": _curve(score),
        "samples_per_second": 41_000.0 if method == "full" else 52_000.0,
        "name": f"{method}-{cap}-{seed}",
        "tables": tables,
        "events": _events(tables) if method == "cce" else [],
        "environment": ENVIRONMENT,
    }
    return RunRecord(**(values | changes))


def made_records(
    methods: Iterable[str] = QUALITY, caps: Iterable[int] = CAPS, seeds: Iterable[int] = (0, 1, 2)
) -> list[RunRecord]:
    """A sweep: full tables, and every method under every cap, with every seed."""
    seeds, caps = list(seeds), list(caps)
    runs = [made_record(method, cap, seed) for method in methods for cap in caps for seed in seeds]
    return [made_record("full", None, seed) for seed in seeds] + runs


def _bce(method: str, cap: int | None, seed: int) -> float:
    noise = 0.00015 * math.sin(7 * seed + len(method) + (cap or 0))
    if cap is None:
        return FULL_BCE + noise
    return 0.4478 + QUALITY.get(method, 0.004) + 0.02 * (300 / cap) ** 0.45 + noise


def _curve(score: float) -> list[dict[str, float]]:
    """Twelve validations of two epochs, the best at the end of the second."""
    curve = []
    for index in range(12):
        bce = score + 0.06 * math.exp(-0.45 * index)
        curve.append({"step": 500 * (index + 1), "epoch": 1 + index // 6, "bce": bce, "auc": 1.15 - 0.8 * bce})
    return curve


def _events(tables: tuple[Footprint, ...]) -> list[dict[str, Any]]:
    """Two clusterings of each clustered table."""
    return [
        {"kind": "cluster", "step": step, "table": table.name, "churn": churn + 0.02 * index, "H1": 5.1 + 0.1 * index}
        | {"H2": 9.6 + 0.1 * index, "dead_rows": 0, "moved": 0.3, "seconds": 0.5, "num_ids": table.num_embeddings}
        for step, churn in ((1500, 0.9), (3000, 0.45), (4500, 0.3))
        for index, table in enumerate(tables)
        if table.method == "cce"
    ]
