"""Lightning: finalizing as a callback. The only file that imports it."""

from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from cce.compression import Finalized, finalize
from cce.embeddings import CCEEmbedding

AVERAGING = ("WeightAveraging", "StochasticWeightAveraging")  # older versions have no first


class FinalizeCallback(Callback):  # type: ignore[misc]
    """Turns int8 rows into pointers and codebooks when `Trainer.fit` ends; `finalized` is the report.

    If a `ModelCheckpoint` of the trainer monitors a score, the weights of its best checkpoint are loaded first.

    refit: called with the model afterwards, such as `lambda model: cce.refit(model, batches)`.
    options: those of `cce.finalize`: `nbytes`, `bits`, `seed` and so on.
    """

    def __init__(self, *, refit: Callable[[nn.Module], object] | None = None, **options: Any) -> None:
        signature(finalize).bind(nn.Module(), **options)  # reject unknown options now
        self.refit, self.options = refit, options
        self.finalized: Finalized | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Reject averages of weights: int8 rows have none."""
        has_rows = any(isinstance(module, CCEEmbedding) and not module.is_final for module in pl_module.modules())
        for callback in trainer.callbacks if has_rows else []:
            if any(kind.__name__ in AVERAGING for kind in type(callback).__mro__):
                name = type(callback).__name__
                raise ValueError(f"callbacks must not average weights while tables train as int8 rows, got {name}.")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Load the best weights, if any are known to be the best, and finalize."""
        saving = trainer.checkpoint_callback
        if getattr(saving, "monitor", None) and getattr(saving, "best_model_path", ""):
            best = torch.load(saving.best_model_path, map_location="cpu", weights_only=True)
            pl_module.load_state_dict(best["state_dict"])
        self.finalized = finalize(pl_module, **self.options)
        if self.refit is not None:
            self.refit(pl_module)
