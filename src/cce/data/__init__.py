"""Raw logs → prepared rows → batches. And made data whose best possible score is known.

Names are loaded when they are first used: preparing data does without torch, and training without pyarrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cce.data.loader import Loader
    from cce.data.planted import SyntheticConfig, prepare_synthetic
    from cce.data.prepared import PreparedData
    from cce.data.synthetic import PlantedClusters, Sample

__all__ = ["Loader", "PlantedClusters", "PreparedData", "Sample", "SyntheticConfig", "prepare_synthetic"]

_HOMES = {
    "Loader": "loader",
    "PlantedClusters": "synthetic",
    "PreparedData": "prepared",
    "Sample": "synthetic",
    "SyntheticConfig": "planted",
    "prepare_synthetic": "planted",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'cce.data' has no attribute {name!r}")
    return getattr(import_module(f"cce.data.{_HOMES[name]}"), name)
