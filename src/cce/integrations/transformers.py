"""Hugging Face's `Trainer`: finalizing as a callback. The only file that imports it."""

from collections.abc import Callable
from inspect import signature
from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from cce.compression import Finalized, finalize


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
