"""Data for training: so far, made rather than read."""

from cce.data.synthetic import PlantedClusters, Sample

__all__ = ["PlantedClusters", "Sample"]
