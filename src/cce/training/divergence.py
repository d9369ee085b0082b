"""Training that diverges: a loss, a score or a weight that is no longer finite ends the run before it is saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cce.training.checkpoint import list_checkpoints

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from cce.training.session import Session


class DivergedError(FloatingPointError):
    """Training diverged; the message says at which step, and what to try."""


def diverged(what: str, session: Session, checkpoints: Path, *, step: int) -> DivergedError:
    """The error for `what` at a step: the learning rate, what to try, and what is left of the run."""
    lr = session.optimizers[0].param_groups[0]["lr"]
    kept = list_checkpoints(checkpoints)
    where = f"the last good checkpoint is {kept[-1]}" if kept else "there is no checkpoint yet"
    hint = "" if session.config.codebook_dtype != "float16" else ", or codebook_dtype bfloat16"
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
