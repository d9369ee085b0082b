"""Who does the work: this process, several on this machine, or a Ray cluster. A list of tasks in, results out."""

from __future__ import annotations

from cce.workers.local import LocalEngine, num_cores
from cce.workers.ray import RayEngine

__all__ = ["LocalEngine", "RayEngine", "check_engine", "num_cores", "open_engine"]


def open_engine(name: str = "local", jobs: int | None = None) -> LocalEngine | RayEngine:
    """`local`, `ray` (a Ray of this machine) or `ray://host:port` (a cluster that is there already)."""
    check_engine(name)
    return LocalEngine(jobs) if name == "local" else RayEngine(None if name == "ray" else name, jobs)


def check_engine(name: str) -> None:
    """Reject the name of an engine that there is not."""
    if name not in ("local", "ray") and not name.startswith("ray://"):
        raise ValueError(f"engine must be local, ray or ray://host:port, got {name!r}.")
