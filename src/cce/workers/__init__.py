"""Who does the work: this process, several on this machine, or a Ray cluster. A list of tasks in, results out."""

from __future__ import annotations

from cce.workers.local import LocalEngine, num_cores
from cce.workers.ray import RayEngine

__all__ = ["LocalEngine", "RayEngine", "num_cores", "open_engine"]


def open_engine(name: str = "local", jobs: int | None = None) -> LocalEngine | RayEngine:
    """`local`, `ray` (a Ray of this machine) or `ray://host:port` (a cluster that is there already)."""
    if name == "local":
        return LocalEngine(jobs)
    if name == "ray" or name.startswith("ray://"):
        return RayEngine(None if name == "ray" else name, jobs)
    raise ValueError(f"engine must be local, ray or ray://host:port, got {name!r}.")
