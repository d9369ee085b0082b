"""cce: embedding tables 10 to 10,000 times smaller while they train, in plain PyTorch.

Here are the names that most users need; methods are in `cce.embeddings`, models in `cce.models`, and so on. Names and
packages are loaded when they are first used, so that `cce --help` does not wait for torch.
"""

# packages are public names, too
from typing import TYPE_CHECKING

from cce.lazy import lazy_names

if TYPE_CHECKING:
    from cce import (
        budget,
        clustering,
        collection,
        data,
        diagnostics,
        embeddings,
        evaluation,
        footprint,
        hashing,
        models,
        optim,
        plugins,
        reclustering,
        records,
        runs,
        schema,
        serving,
        training,
    )
    from cce.checkpoints import load_checkpoint, save_checkpoint
    from cce.collection import EmbeddingCollection
    from cce.compression import compress, finalize, refit
    from cce.data import prepare
    from cce.diagnostics import summary
    from cce.embeddings import create_embedding
    from cce.hashing import hash_ids
    from cce.runs import evaluate, load_run, predict, train
    from cce.saving import load, save
    from cce.serving import apply_delta, delta, freeze
    from cce.version import __version__

__all__ = [
    "EmbeddingCollection",
    "__version__",
    "apply_delta",
    "compress",
    "create_embedding",
    "delta",
    "evaluate",
    "finalize",
    "freeze",
    "hash_ids",
    "load",
    "load_checkpoint",
    "load_run",
    "optim",
    "predict",
    "prepare",
    "refit",
    "save",
    "save_checkpoint",
    "summary",
    "train",
]

__getattr__, __dir__ = lazy_names(__name__)
