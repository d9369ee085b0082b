"""Hugging Face's `Trainer`: finalizing, and the paper's clusterings, as callbacks. The only file that imports it."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from cce.compression import Finalized, finalize
from cce.reclustering import ClusterSchedule


class FinalizeCallback(TrainerCallback):  # type: ignore[misc]
    """Turns int8 rows into pointers and codebooks when `Trainer.train` ends; `finalized` is the report.

    With `TrainingArguments(load_best_model_at_end=True)` these are the rows of the best checkpoint.

    refit: called with the model afterwards, such as `lambda model: cce.refit(model, batches)`.
    options: those of `cce.finalize`: `nbytes`, `bits`, `seed` and so on.
    """

    def __init__(self, *, refit: Callable[[nn.Module], object] | None = None, **options: Any) -> None:
        signature(finalize).bind(nn.Module(), **options)  # reject unknown options now
        self.refit, self.options = refit, options
        self.finalized: Finalized | None = None

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **parts: Any) -> None:
        """Finalize; the Trainer has loaded the best weights by now."""
        del args, state, control
        self.finalized = finalize(parts["model"], **self.options)
        if self.refit is not None:
            self.refit(parts["model"])


class ClusterCallback(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Clusters the tables of a model while `Trainer.train` trains it, and repairs the optimizer.

    when: as of `cce.ClusterSchedule`: `every` and `times`, `at_steps`, or `total`, `times` and `rest`; and its `policy`
    and `seed`. Steps are the optimizer's. To resume to the bit, train with
    `TrainingArguments(restore_callback_states_from_checkpoint=True)`.
    """

    def __init__(self, **when: Any) -> None:
        ClusterSchedule(nn.Module(), **when)  # says now what is wrong
        self.when = when
        self.schedule: ClusterSchedule | None = None
        self.generator: list[int] | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **parts: Any
    ) -> None:
        """Look for the tables, and go on where a checkpoint was taken."""
        del args, control
        self.schedule = ClusterSchedule(parts["model"], _plain(parts["optimizer"]), **self.when)
        self.schedule.num_steps = state.global_step
        if self.generator is not None and state.global_step:
            self.schedule.generator.set_state(torch.tensor(self.generator, dtype=torch.uint8))

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **parts: Any) -> None:
        """Cluster, if it is time."""
        del args, state, control, parts
        if self.schedule is not None:
            self.schedule.step()

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, as JSON."""
        known = self.schedule.generator.get_state().tolist() if self.schedule is not None else self.generator
        return {"args": self.when, "attributes": {"generator": known}}


def _plain(optimizer: Optimizer) -> Optimizer:
    """The optimizer inside that of accelerate."""
    inner: Optimizer = getattr(optimizer, "optimizer", optimizer)
    return inner
