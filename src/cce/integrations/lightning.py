"""Lightning: finalizing, and the paper's clusterings, as callbacks. The only file that imports it."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import WeightAveraging
from torch import nn

from cce.compression import Finalized, finalize
from cce.reclustering import ClusterSchedule


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

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Load the best weights, if any are known to be the best, and finalize."""
        saving = trainer.checkpoint_callback
        if getattr(saving, "monitor", None) and getattr(saving, "best_model_path", ""):
            best = torch.load(saving.best_model_path, map_location="cpu", weights_only=True)
            pl_module.load_state_dict(best["state_dict"])
        self.finalized = finalize(pl_module, **self.options)
        if self.refit is not None:
            self.refit(pl_module)


class ClusterCallback(Callback):  # type: ignore[misc]
    """Clusters the tables of a LightningModule while `Trainer.fit` trains it, and repairs the optimizer.

    when: as of `cce.ClusterSchedule`: `every` and `times`, `at_steps`, `at_epochs` (`steps_per_epoch` is the
    trainer's), or `total`, `times` and `rest`; and its `policy` and `seed`. Steps are the optimizer's, so a gradient
    that is accumulated over several batches counts once.

    Checkpoints hold what a resumed run needs. With several processes (`strategy="ddp"`) each clusters some tables and
    all get the results. Averages of Lightning's `WeightAveraging` callbacks restart where a table was clustered.
    """

    def __init__(self, **when: Any) -> None:
        ClusterSchedule(nn.Module(), **_with_steps(when, 1))  # says now what is wrong
        self.when = when
        self.schedule: ClusterSchedule | None = None
        self._saved: dict[str, Any] | None = None
        self._last_step = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look for the tables, and go on where a checkpoint was taken."""
        when = _with_steps(self.when, _steps_per_epoch(trainer))
        averages = [
            callback._average_model  # Lightning has no public name for it
            for callback in trainer.callbacks
            if isinstance(callback, WeightAveraging) and callback._average_model is not None
        ]
        self.schedule = ClusterSchedule(pl_module, trainer.optimizers, averages=averages, **when)
        if self._saved is not None:
            self.schedule.load_state_dict(self._saved)
        self._last_step = trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Count the step, if the optimizer took one, and cluster if it is time."""
        if self.schedule is None or trainer.global_step == self._last_step:
            return
        self._last_step = trainer.global_step
        for name, event in zip(self.schedule.clustered, self.schedule.step(), strict=False):
            pl_module.log(f"clustering/{name}/churn", event.churn)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run must know."""
        return {} if self.schedule is None else self.schedule.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep it until training starts."""
        self._saved = state_dict or None


def _with_steps(when: dict[str, Any], steps_per_epoch: int) -> dict[str, Any]:
    return {"steps_per_epoch": steps_per_epoch} | when if when.get("at_epochs") is not None else when


def _steps_per_epoch(trainer: Trainer) -> int:
    batches, accumulated = int(trainer.num_training_batches), int(trainer.accumulate_grad_batches)
    return max(1, -(-batches // accumulated))
