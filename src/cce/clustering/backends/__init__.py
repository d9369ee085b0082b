"""Ways to run k-means, by name. A new one is a file here and its name in `MODULES`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from cce import compiled
from cce.checks import check_choice

if TYPE_CHECKING:
    from torch import Tensor

    from cce.clustering.backends.base import Backend

MODULES = ("torch", "native", "faiss")
BACKENDS: dict[str, Backend] = {name: import_module(f"{__name__}.{name}").BACKEND for name in MODULES}
FEW_PAIRS = 1 << 15  # plain torch is as fast; compiling takes longer, once


def choose_backend(name: str, points: Tensor, n_clusters: int) -> Backend:
    """Resolve "auto"; reject a backend that does not exist or cannot take these points."""
    check_choice("backend", name, ("auto", *BACKENDS))
    backend = BACKENDS[_fastest(points, n_clusters) if name == "auto" else name]
    why_not = backend.why_not(points)
    if why_not:
        raise ValueError(f"backend {name!r} {why_not}.")
    return backend


def _fastest(points: Tensor, n_clusters: int) -> str:
    """Return plain torch for few pairs, where compiling would take longer than searching, else compiled loops.

    Both give the same result. Which packages are installed plays no part in it.
    """
    if points.shape[0] * n_clusters <= FEW_PAIRS:
        return "torch"
    if not BACKENDS["native"].why_not(points):
        return "native"
    if not compiled.available and points.device.type == "cpu":
        compiled.warn_plain()
    return "torch"
