"""Which optimizers go with which tables and options: sparse gradients, weight decay, 16 bits. No torch here."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cce.training.config import TrainConfig

LAZY_DECAY = ("rowwise_adagrad", "lazy_adam")  # weight decay of sparse gradients, and of no 16-bit tables
SPARSE_OPTIMIZERS = ("sgd", *LAZY_DECAY, "adagrad", "sparse_adam")
FLOAT16_LOST = 2.0**-25  # the largest number that float16 rounds to zero
FLOAT16_LARGEST = 65504.0
NO_SQUARES = ("sgd", "rowwise_adagrad", "asgd", "rprop")  # or they are stored in float32
BETAS = ("adam", "lazy_adam", "adamw", "nadam", "radam", "sparse_adam")


def check_optimizer(config: TrainConfig) -> None:
    """Reject an optimizer that cannot train the tables of a run as it says."""
    if config.codebook_dtype == "float16":
        check_float16(config.optimizer, config.optimizer_options, lr=config.lr)
    if config.sparse and config.optimizer not in SPARSE_OPTIMIZERS:
        known = ", ".join(SPARSE_OPTIMIZERS)
        raise ValueError(f"sparse must have an optimizer of {known}; got {config.optimizer!r}.")
    if config.optimizer == "sparse_adam" and not config.sparse:
        raise ValueError("optimizer 'sparse_adam' must have sparse=True, got sparse=False.")
    _check_decay(config)


def _check_decay(config: TrainConfig) -> None:
    for name in {"weight_decay", "row_lr"} & config.optimizer_options.keys():
        got = config.optimizer_options[name]
        raise ValueError(f"optimizer_options must leave out {name}: it is an option of the run, got {got!r}.")
    if not config.weight_decay:
        return
    if config.sparse and config.optimizer not in LAZY_DECAY:
        got = f"{config.weight_decay} and {config.optimizer!r}"
        raise ValueError(f"weight_decay with sparse must have an optimizer of {', '.join(LAZY_DECAY)}; got {got}.")
    if config.codebook_dtype != "float32" and config.optimizer in ("sgd", *LAZY_DECAY):
        got = f"{config.weight_decay} with {config.codebook_dtype!r} and {config.optimizer!r}"
        raise ValueError(f"weight_decay of 16-bit tables would be rounded off: take 0, or adam; got {got}.")


def check_float16(optimizer: str, options: Mapping[str, Any], *, lr: float = 0.0) -> None:
    """Reject an optimizer that would divide by squares of gradients that float16 has lost.

    Torch keeps an optimizer's state in the type of the parameter. A second moment adds `(1 - beta2) * g**2`, and
    float16 rounds what is not above 2**-25 to zero: the step of such a gradient is `lr * g / eps`, however small `eps`
    is. An `eps` of at least the largest gradient whose square is lost, `sqrt(2**-25 / (1 - beta2))`, bounds it by `lr`.
    """
    if lr > FLOAT16_LARGEST:
        raise ValueError(f"lr must be at most {FLOAT16_LARGEST:g} with codebook_dtype 'float16', got {lr:g}.")
    if optimizer in NO_SQUARES:
        return
    known = (*NO_SQUARES, *BETAS, "rmsprop", "adagrad")
    if optimizer not in known:
        raise ValueError(f"codebook_dtype 'float16' must have an optimizer of {', '.join(known)}; got {optimizer!r}.")
    least, eps = math.sqrt(FLOAT16_LOST / _share_of_squares(optimizer, options)), options.get("eps")
    if not isinstance(eps, int | float) or not least <= eps < math.inf:
        got = "none" if eps is None else repr(eps)
        raise ValueError(
            f"codebook_dtype 'float16' needs optimizer_options eps of at least {least:.4g} with optimizer "
            f"{optimizer!r}, as squares of smaller gradients are 0 in float16, got {got}; or take bfloat16, sgd or "
            "rowwise_adagrad."
        )


def _share_of_squares(optimizer: str, options: Mapping[str, Any]) -> float:
    """What the square of a gradient is multiplied by before it is added to the second moment."""
    if optimizer == "adagrad":
        return 1.0
    betas = options.get("betas", (0.9, 0.999)) if optimizer in BETAS else (0.0, options.get("alpha", 0.99))
    if not isinstance(betas, list | tuple) or len(betas) != 2 or not all(type(b) in (int, float) for b in betas):
        raise TypeError(f"optimizer_options betas must be two numbers, got {betas!r}.")
    if not 0 <= betas[1] < 1:
        name = "betas" if optimizer in BETAS else "alpha"
        raise ValueError(f"optimizer_options {name} must lie in [0, 1), got {options[name]!r}.")
    return float(1 - betas[1])
