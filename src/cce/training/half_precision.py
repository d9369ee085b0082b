"""Which optimizers may train tables of float16, and with which `eps`.

Torch keeps an optimizer's state in the type of the parameter. A second moment adds `(1 - beta2) * g**2`, and float16
rounds what is not above 2**-25 to zero: the step of such a gradient is `lr * g / eps`, however small `eps` is. An `eps`
of at least the largest gradient whose square is lost, `sqrt(2**-25 / (1 - beta2))`, bounds that step by `lr`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

LOST = 2.0**-25  # the largest number that float16 rounds to zero
LARGEST = 65504.0
NO_SQUARES = ("sgd", "rowwise_adagrad", "asgd", "rprop")  # or they are stored in float32
BETAS = ("adam", "adamw", "nadam", "radam", "sparse_adam")


def check_half(optimizer: str, options: Mapping[str, Any], *, lr: float = 0.0) -> None:
    """Reject an optimizer that would divide by squares of gradients that float16 has lost."""
    if lr > LARGEST:
        raise ValueError(f"lr must be at most {LARGEST:g} with codebook_dtype 'float16', got {lr:g}.")
    if optimizer in NO_SQUARES:
        return
    known = (*NO_SQUARES, *BETAS, "rmsprop", "adagrad")
    if optimizer not in known:
        raise ValueError(f"codebook_dtype 'float16' must have an optimizer of {', '.join(known)}; got {optimizer!r}.")
    least, eps = math.sqrt(LOST / _share_of_squares(optimizer, options)), options.get("eps")
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
