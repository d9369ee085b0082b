"""Vectors → centroids and the nearest centroid of each: k-means, exact assignment, sampling of ids, quantizers."""

from cce.clustering.agreement import churn, column_entropies, contingency, count_dead
from cce.clustering.backends import KMeans
from cce.clustering.kmeans import ClusterSettings, checked_settings, kmeans, nearest_centroid
from cce.clustering.quantizers import ProductQuantizer, Quantizer, ResidualQuantizer, encode_all
from cce.clustering.sampling import (
    Sample,
    Source,
    Weights,
    draw_sample,
    draw_weighted,
    piece_size,
    sample_ids,
    vectors_of,
)
