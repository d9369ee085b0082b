"""When training ends before its last step: it gets worse, it diverges, or one of its processes dies.

Early stopping is the paper's rule: the best validation of an epoch is worse than that of the epoch before. What is best
is decided by one metric, the paper's BCE unless another is named. Divergence: a loss, logits or a weight that is not
finite ends the run before anything of it is saved.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn
from tqdm import tqdm

from cce.distributed import Ranks, is_lost_peer
from cce.evaluation import DEFAULT_METRICS, find_metric
from cce.run_folder import RunFolder
from cce.training.checkpoint import list_checkpoints

if TYPE_CHECKING:
    from cce.training.session import Session

STATE = ("best", "best_step", "this_epoch", "last_epoch")


class EarlyStopping:
    """Hears of every validation and the end of every epoch; knows the best so far and when it is enough.

    Scores are compared as losses: scores of which more is better are negated.
    """

    def __init__(self, metric: str = DEFAULT_METRICS[0]) -> None:
        self.metric = find_metric(metric)
        self.best, self.best_step = math.inf, -1  # of all
        self.this_epoch, self.last_epoch = math.inf, math.inf

    def add(self, score: float, step: int) -> bool:
        """Note a validation; whether it is the best so far. A score that is not a number never is."""
        loss = self.metric.loss(score)
        self.this_epoch = min(self.this_epoch, loss if not math.isnan(loss) else math.inf)
        if not loss < self.best:
            return False
        self.best, self.best_step = loss, step
        return True

    def end_epoch(self) -> bool:
        """Whether to stop: this epoch's best is worse than the last one's."""
        worse = self.this_epoch > self.last_epoch
        self.last_epoch, self.this_epoch = self.this_epoch, math.inf
        return worse

    def forget(self) -> None:
        """Begin again, with a model that is not to be compared with those before."""
        self.best, self.best_step, self.this_epoch, self.last_epoch = math.inf, -1, math.inf, math.inf

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in STATE}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update({name: state[name] for name in STATE})


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
        lr = self.session.optimizer.param_groups[0]["lr"]
        where = f"{what} at step {step:,} with learning rate {lr:g}"
        return DivergedError(f"{where}: training diverged. Try a lower lr; {last_checkpoint(self.folder)}.")


def non_finite_parameter(model: nn.Module) -> str | None:
    """The name of a trained parameter that holds NaN or infinity, if there is one."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not bool(parameter.detach().isfinite().all()):
            return name
    return None


@contextmanager
def explained_lost_peer(folder: RunFolder, ranks: Ranks) -> Iterator[None]:
    """Say what a broken connection means."""
    try:
        yield
    except RuntimeError as error:
        if ranks.world_size == 1 or not is_lost_peer(error):
            raise
        what = f"another process of this run has died; {last_checkpoint(folder)}; resume with {how_to_resume(folder)}."
        tqdm.write(what, file=sys.stderr)  # at once: torchrun is about to end this process as well
        raise ConnectionError(what) from error


def last_checkpoint(folder: RunFolder) -> str:
    checkpoints = list_checkpoints(folder.checkpoints)
    return f"the last checkpoint is {checkpoints[-1]}" if checkpoints else "there is no checkpoint yet"


def how_to_resume(folder: RunFolder) -> str:
    return f"`cce train --resume {folder.path}`"
