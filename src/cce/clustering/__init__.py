"""Vectors → centroids and the nearest centroid of each: k-means, exact assignment, sampling of ids."""

from cce.clustering.fit import KMeans
from cce.clustering.kmeans import kmeans
from cce.clustering.nearest import nearest_centroid
from cce.clustering.quantize import ClusterSettings
from cce.clustering.sampling import sample_ids

__all__ = ["ClusterSettings", "KMeans", "kmeans", "nearest_centroid", "sample_ids"]
