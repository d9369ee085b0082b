"""cce: embedding tables 10 to 10,000 times smaller while they train, in plain PyTorch.

Names are loaded when they are first used, so that `cce --help` does not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cce.version import __version__

if TYPE_CHECKING:
    from cce import optim
    from cce.budget import Budget
    from cce.calls import make_report, prepare, sweep, train
    from cce.clustering import ClusterSettings
    from cce.collection import EmbeddingCollection, plan_tables
    from cce.compression import compress
    from cce.data import PreparedData, register_source
    from cce.diagnostics import Collapse, diagnose_collapse, pointer_entropies, summary
    from cce.embeddings import (
        CCEEmbedding,
        Clusterable,
        ClusteredEmbedding,
        ClusterEvent,
        CollidingEmbedding,
        CompositionalConcatEmbedding,
        CompositionalProductEmbedding,
        CompositionalSumEmbedding,
        DeepHashEmbedding,
        Embedding,
        EmbeddingBag,
        FullEmbedding,
        HashEmbedding,
        HashingTrickEmbedding,
        LowRankEmbedding,
        MixedDimensionEmbedding,
        ProductQuantizedEmbedding,
        QuantizationAwareEmbedding,
        QuantizedEmbedding,
        RobeEmbedding,
        TensorTrainEmbedding,
        cluster_table,
        create_embedding,
        list_methods,
        paper_schedule,
        register_method,
    )
    from cce.evaluation import register_metric
    from cce.footprint import Footprint, Footprints
    from cce.models import DLRM, GMF, MLP, DCNv2, DeepFM, FinalMLP, create_model, register_model
    from cce.plugins import load_plugins
    from cce.reclustering import ClusterSchedule, Refit, repair_optimizer, restart_average
    from cce.records import RunRecord
    from cce.runs import LoadedRun, load_run
    from cce.saving import load, save
    from cce.schema import Batch, Feature, Schema
    from cce.serving import freeze
    from cce.training import TrainConfig, Trainer

__all__ = [
    "DLRM",
    "GMF",
    "MLP",
    "Batch",
    "Budget",
    "CCEEmbedding",
    "ClusterEvent",
    "ClusterSchedule",
    "ClusterSettings",
    "Clusterable",
    "ClusteredEmbedding",
    "Collapse",
    "CollidingEmbedding",
    "CompositionalConcatEmbedding",
    "CompositionalProductEmbedding",
    "CompositionalSumEmbedding",
    "DCNv2",
    "DeepFM",
    "DeepHashEmbedding",
    "Embedding",
    "EmbeddingBag",
    "EmbeddingCollection",
    "Feature",
    "FinalMLP",
    "Footprint",
    "Footprints",
    "FullEmbedding",
    "HashEmbedding",
    "HashingTrickEmbedding",
    "LoadedRun",
    "LowRankEmbedding",
    "MixedDimensionEmbedding",
    "PreparedData",
    "ProductQuantizedEmbedding",
    "QuantizationAwareEmbedding",
    "QuantizedEmbedding",
    "Refit",
    "RobeEmbedding",
    "RunRecord",
    "Schema",
    "TensorTrainEmbedding",
    "TrainConfig",
    "Trainer",
    "__version__",
    "cluster_table",
    "compress",
    "create_embedding",
    "create_model",
    "diagnose_collapse",
    "freeze",
    "list_methods",
    "load",
    "load_plugins",
    "load_run",
    "make_report",
    "optim",
    "paper_schedule",
    "plan_tables",
    "pointer_entropies",
    "prepare",
    "register_method",
    "register_metric",
    "register_model",
    "register_source",
    "repair_optimizer",
    "restart_average",
    "save",
    "summary",
    "sweep",
    "train",
]

_HOMES = {
    "DLRM": "cce.models",
    "GMF": "cce.models",
    "MLP": "cce.models",
    "Batch": "cce.schema",
    "Budget": "cce.budget",
    "ClusterSchedule": "cce.reclustering",
    "ClusterSettings": "cce.clustering",
    "Collapse": "cce.diagnostics",
    "DCNv2": "cce.models",
    "DeepFM": "cce.models",
    "EmbeddingCollection": "cce.collection",
    "Feature": "cce.schema",
    "FinalMLP": "cce.models",
    "Footprint": "cce.footprint",
    "Footprints": "cce.footprint",
    "LoadedRun": "cce.runs",
    "PreparedData": "cce.data",
    "Refit": "cce.reclustering",
    "RunRecord": "cce.records",
    "Schema": "cce.schema",
    "TrainConfig": "cce.training",
    "Trainer": "cce.training",
    "compress": "cce.compression",
    "create_model": "cce.models",
    "diagnose_collapse": "cce.diagnostics",
    "freeze": "cce.serving",
    "load": "cce.saving",
    "load_plugins": "cce.plugins",
    "load_run": "cce.runs",
    "make_report": "cce.calls",
    "plan_tables": "cce.collection",
    "pointer_entropies": "cce.diagnostics",
    "prepare": "cce.calls",
    "register_metric": "cce.evaluation",
    "register_model": "cce.models",
    "register_source": "cce.data",
    "repair_optimizer": "cce.reclustering",
    "restart_average": "cce.reclustering",
    "save": "cce.saving",
    "summary": "cce.diagnostics",
    "sweep": "cce.calls",
    "train": "cce.calls",
}
_SUBPACKAGES = ("optim",)  # used by their own names, as torch.optim is


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'cce' has no attribute {name!r}")
    if name in _SUBPACKAGES:
        return import_module(f"cce.{name}")
    value = getattr(import_module(_HOMES.get(name, "cce.embeddings")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
