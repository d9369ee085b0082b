"""Settings of k-means on tables; the defaults are the paper's."""

from __future__ import annotations

from dataclasses import dataclass

from cce.checks import check_choice, check_flag, check_number, check_range, check_type
from cce.clustering.backends import BACKENDS
from cce.clustering.kmeans import INITS


@dataclass(frozen=True)
class ClusterSettings:
    """Settings of k-means; the defaults are the paper's.

    tol: k-means ends when an iteration lowers the inertia by no more than this share of it.
    """

    max_iter: int = 50  # paper, "K-means"
    points_per_row: int = 256  # paper: at most 256 sampled ids for each centroid
    tol: float = 0.0
    init: str = "random"
    sampling: str = "uniform"  # or "frequency": ids are sampled by how often they occur
    weighted: bool = False  # k-means weighs a sampled id by how often it occurs
    backend: str = "auto"
    block_size: int = 1 << 18  # ids encoded at a time, at most

    def __post_init__(self) -> None:
        check_range("max_iter", self.max_iter, 1, 2**31)
        check_number("tol", self.tol)
        check_range("points_per_row", self.points_per_row, 1, 2**31)
        check_range("block_size", self.block_size, 1, 2**31)
        check_flag("weighted", self.weighted)
        check_choice("init", self.init, INITS)
        check_choice("backend", self.backend, ("auto", *BACKENDS))
        check_choice("sampling", self.sampling, ("uniform", "frequency"))

    @property
    def needs_counts(self) -> bool:
        """Whether it must be known how often ids occur."""
        return self.weighted or self.sampling == "frequency"


def checked_settings(settings: ClusterSettings | None) -> ClusterSettings:
    """`settings`, or the paper's; reject anything else, such as a dictionary."""
    if settings is None:
        return ClusterSettings()
    check_type("settings", settings, ClusterSettings, "ClusterSettings")
    return settings
