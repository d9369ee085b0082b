"""Training that diverges: a loss, logits or a weight that is not finite ends the run before anything of it is saved."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cce.training.checkpoint import list_checkpoints

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from cce.run_folder import RunFolder
    from cce.training.session import Session


class DivergedError(FloatingPointError):
    """Training diverged; the message says at which step, and what to try."""


class DivergenceGuard:
    """Raises a `DivergedError` for what is not finite, on every rank alike."""

    def __init__(self, session: Session, folder: RunFolder) -> None:
        self.session, self.folder = session, folder

    def check_loss(self, loss: float) -> None:
        """Check the loss of the step that is being taken, summed over ranks."""
        if not math.isfinite(loss):
            raise self._error(f"loss must be finite, got {loss}", step=self.session.step + 1)

    def check_weights(self) -> None:
        """Check what is about to be clustered, validated or saved."""
        name = non_finite_parameter(self.session.model)
        if name is not None:
            raise self._error(f"{name} must be finite, got NaN or infinity", step=self.session.step)

    @contextmanager
    def explained_logits(self) -> Iterator[None]:
        """Logits that metrics reject because they are not finite mean that training diverged."""
        try:
            yield
        except ValueError as error:
            if not str(error).startswith("logits must be finite"):
                raise
            raise self._error(str(error).rstrip("."), step=self.session.step) from error

    def _error(self, what: str, *, step: int) -> DivergedError:
        lr = self.session.optimizers[0].param_groups[0]["lr"]
        checkpoints = list_checkpoints(self.folder.checkpoints)
        where = f"the last good checkpoint is {checkpoints[-1]}" if checkpoints else "there is no checkpoint yet"
        hint = "" if self.session.config.codebook_dtype != "float16" else ", or codebook_dtype bfloat16"
        return DivergedError(
            f"{what} at step {step:,} with learning rate {lr:g}: training diverged. "
            f"Try a lower lr or more warmup_steps{hint}; {where}."
        )


def non_finite_parameter(model: nn.Module) -> str | None:
    """The name of a trained parameter that holds NaN or infinity, if there is one."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not bool(parameter.detach().isfinite().all()):
            return name
    return None
