"""Tiny data sets and runs for tests of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cce.data import PreparedData, SyntheticConfig, prepare_synthetic
from cce.training import ResolvedConfig, TrainConfig, resolve

if TYPE_CHECKING:
    from pathlib import Path

SIZES = (120, 60, 30)
OPTIONS: dict[str, Any] = {
    "method": "cce-paper",
    "cap": 320,
    "embedding_dim": 8,
    "epochs": 2,
    "batch_size": 64,
    "optimizer": "adam",
    "lr": 0.01,
    "model_options": {"bottom": [8], "top": [8]},
    "cluster_at": [7 / 13, 14 / 13, 21 / 13],
    "validations_per_epoch": 3,
    "early_stopping": False,
    "threads": 1,
    "device": "cpu",
}
CCE = {"method": "cce", "cluster_at": "auto"}  # int8 rows, then pointers, then refits
NETWORK = {"bottom": [8], "top": [128]}  # of a DLRM


def tiny_data(folder: Path, **changes: Any) -> Path:
    """800 training rows, 100 for validation, 100 for the test; 3 features and 2 dense features."""
    sizes = {"num_rows": 1000, "vocabulary_sizes": SIZES, "num_clusters": 4, "num_dense": 2} | changes
    prepare_synthetic(folder, SyntheticConfig(**sizes), progress=False)
    return folder


def tiny_config(data: Path, **changes: Any) -> TrainConfig:
    """13 steps an epoch; clusterings after steps 7, 14 and 21."""
    return TrainConfig(data=str(data), **(OPTIONS | changes))


def tiny_resolved(data: Path, **changes: Any) -> ResolvedConfig:
    """The same, with everything decided."""
    return resolve(tiny_config(data, **changes), PreparedData.open(data))
