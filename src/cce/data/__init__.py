"""Raw logs → prepared rows → batches. And made data whose best possible score is known."""

from cce.data.loader import Loader
from cce.data.planted import SyntheticConfig, prepare_synthetic
from cce.data.prepared import PreparedData
from cce.data.synthetic import PlantedClusters, Sample

__all__ = ["Loader", "PlantedClusters", "PreparedData", "Sample", "SyntheticConfig", "prepare_synthetic"]
