"""cce: embedding tables 10 to 10,000 times smaller while they train, in plain PyTorch.

Names are loaded when they are first used, so that `cce --help` does not wait for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cce.lazy import lazy_names
from cce.version import __version__

if TYPE_CHECKING:
    from cce import optim
    from cce.budget import Budget
    from cce.clustering import ClusterSettings
    from cce.collection import EmbeddingCollection, plan_tables
    from cce.compression import compress, finalize, refit
    from cce.data import PreparedData, prepare, register_source
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
        QuantizedEmbedding,
        RobeEmbedding,
        TensorTrainEmbedding,
        create_embedding,
        list_methods,
        paper_schedule,
        register_method,
    )
    from cce.evaluation import register_metric
    from cce.footprint import Footprint, Footprints
    from cce.hashing import hash_ids
    from cce.models import DLRM, GMF, MLP, DCNv2, DeepFM, create_model, register_model
    from cce.plugins import load_plugins
    from cce.reclustering import ClusterSchedule, Refit, repair_optimizer, restart_average
    from cce.records import RunRecord
    from cce.runs import LoadedRun, evaluate, load_run, predict, train
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
    "QuantizedEmbedding",
    "Refit",
    "RobeEmbedding",
    "RunRecord",
    "Schema",
    "TensorTrainEmbedding",
    "TrainConfig",
    "Trainer",
    "__version__",
    "compress",
    "create_embedding",
    "create_model",
    "diagnose_collapse",
    "evaluate",
    "finalize",
    "freeze",
    "hash_ids",
    "list_methods",
    "load",
    "load_plugins",
    "load_run",
    "optim",
    "paper_schedule",
    "plan_tables",
    "pointer_entropies",
    "predict",
    "prepare",
    "refit",
    "register_method",
    "register_metric",
    "register_model",
    "register_source",
    "repair_optimizer",
    "restart_average",
    "save",
    "summary",
    "train",
]


__getattr__, __dir__ = lazy_names(__name__)
