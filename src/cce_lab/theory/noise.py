"""The random columns of dense CCE, in four kinds (the paper's appendix, "SVD aligned noise converges faster").

"iid" are standard normal values `G`. "smart" ones are aligned with X: with `X = UΣVᵀ` they are `VΣ⁻¹G`, so that `XG`
prefers no direction. In the "half" kinds the codebook is held to the form `[I | M']`, as in the proof of the theorem:
the last table is taken over as it is, and only noise is added to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from cce.checks import check_choice

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Generator, Tensor

    from cce_lab.theory.least_squares import LeastSquares


@dataclass(frozen=True)
class Noise:
    """What the random columns are aligned with, and whether only they are fitted."""

    is_aligned: bool
    is_half: bool


NOISES = {
    "iid": Noise(is_aligned=False, is_half=False),
    "half-iid": Noise(is_aligned=False, is_half=True),
    "smart": Noise(is_aligned=True, is_half=False),
    "half-smart": Noise(is_aligned=True, is_half=True),
}


def noise_of(name: str) -> Noise:
    """The kind of noise of this name."""
    check_choice("noise", name, NOISES)
    return NOISES[name]


def noise_source(problem: LeastSquares, noise: Noise) -> Callable[[int, Generator | None], Tensor]:
    """A function that draws `(num_embeddings, count)` random columns."""
    if not noise.is_aligned:
        return lambda count, generator: _normal(problem.num_embeddings, count, generator)
    _, sigma, vh = torch.linalg.svd(problem.reduced.x, full_matrices=False)
    is_there = sigma > sigma[0] * len(sigma) * torch.finfo(sigma.dtype).eps  # of rank-deficient X, only its own space
    align = vh[is_there].T / sigma[is_there]
    return lambda count, generator: align @ _normal(align.shape[1], count, generator)


def _normal(num_rows: int, count: int, generator: Generator | None) -> Tensor:
    return torch.randn(num_rows, count, generator=generator, dtype=torch.float64)
