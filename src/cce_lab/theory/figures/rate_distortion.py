"""Rate and distortion on planted clusters: what a bit for each id buys when the best clustering is known.

Every id has the vector of its planted cluster plus noise, and is counted by Zipf's law. One column of k rows costs
log2 k bits per id; distortion is the squared error weighted by counts, relative to that of one row for all ids. The
oracle knows the planted clusters: their weighted means cost log2 of their number.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cce.clustering import kmeans, nearest_centroid
from cce_lab.theory.figure import Claim, Figure, Series, level

WEIGHTED, PLAIN, RANDOM = "k-means++, weighted by counts", "k-means++, unweighted", "random start, weighted"
ORACLE = "planted clusters"
MARGIN = 1.05  # of the oracle: as good as
KNEE = 3.0  # times as much as a bit beyond the knee


@dataclass(frozen=True)
class Sizes:
    """Sizes of the vocabulary; `noise` is the deviation within a cluster, where centers have 1."""

    num_embeddings: int = 20_000
    embedding_dim: int = 16
    cluster_bits: int = 6  # 2**6 planted clusters
    noise: float = 0.2
    max_bits: int = 10


QUICK = Sizes(num_embeddings=1_500, embedding_dim=8, cluster_bits=4, max_bits=7)


def rate_distortion_figure(*, seed: int = 0, quick: bool = False) -> Figure:
    """The distortion of three ways to cluster at 0, 1, 2, … bits per id, and that of the planted clusters."""
    sizes, generator = QUICK if quick else Sizes(), torch.Generator().manual_seed(seed)
    num_clusters = 2**sizes.cluster_bits
    planted = torch.randint(num_clusters, (sizes.num_embeddings,), generator=generator)
    centers = torch.randn(num_clusters, sizes.embedding_dim, generator=generator)
    own = torch.randn(sizes.num_embeddings, sizes.embedding_dim, generator=generator)
    vectors = centers[planted] + sizes.noise * own
    counts = 1 / (1 + torch.randperm(sizes.num_embeddings, generator=generator).float())
    bits = tuple(range(sizes.max_bits + 1))
    found: dict[str, list[float]] = {}
    ways = {WEIGHTED: ("k-means++", counts), PLAIN: ("k-means++", None), RANDOM: ("random", counts)}
    for name, (init, weights) in ways.items():
        fits = [kmeans(vectors, 2**b, init=init, sample_weight=weights, generator=generator) for b in bits]
        found[name] = [distortion(vectors, nearest_centroid(vectors, fit.centroids), counts) for fit in fits]
    oracle = distortion(vectors, planted, counts)
    series = tuple(Series(name, bits, tuple(line), is_reference=name == PLAIN) for name, line in found.items())
    return Figure(
        name="rate-distortion",
        title=f"Rate and distortion with {num_clusters} planted clusters",
        x_label="bits per id",
        y_label="distortion, relative",
        series=(*series, level(ORACLE, oracle, sizes.max_bits)),
        claims=_claims(found, oracle, sizes.cluster_bits),
        settings={**vars(sizes), "seed": seed},
        log_y=True,
    )


def distortion(vectors: Tensor, clusters: Tensor, counts: Tensor) -> float:
    """The squared error of the weighted means of clusters, relative to that of the mean of all, weighted by counts."""
    weights = counts.double().unsqueeze(1)

    def error(groups: Tensor) -> float:
        sums = torch.zeros(int(groups.max()) + 1, vectors.shape[1], dtype=torch.float64)
        totals = torch.zeros(len(sums), 1, dtype=torch.float64).index_add_(0, groups, weights)
        means = sums.index_add_(0, groups, weights * vectors) / totals.clamp(min=1e-30)
        return float((weights * (vectors - means[groups]).square()).sum())

    return error(clusters) / error(torch.zeros_like(clusters))


def _claims(found: dict[str, list[float]], oracle: float, rate: int) -> tuple[Claim, ...]:
    line, plain, random = (found[name] for name in (WEIGHTED, PLAIN, RANDOM))
    near = math.log2(line[rate - 1] / line[rate + 1]) / 2
    beyond = math.log2(line[rate + 1] / line[-1]) / (len(line) - rate - 2)
    return (
        Claim(
            "at the rate of the planted clusters weighted k-means has their distortion, within 5 %",
            line[rate] <= MARGIN * oracle,
            f"{line[rate]:.4f} and {oracle:.4f}; from a random start {random[rate]:.4f}",
        ),
        Claim("with one bit more it has less", line[rate + 1] < oracle, f"{line[rate + 1]:.4f} and {oracle:.4f}"),
        Claim(
            f"there the curve bends: bits around that rate lower it {KNEE:g} times as much as those beyond, in octaves",
            near >= KNEE * beyond,
            f"{near:.2f} and {beyond:.2f} octaves a bit",
        ),
        Claim(
            "beyond that rate weights lower the weighted distortion",
            all(ours < theirs for ours, theirs in zip(line[rate + 1 :], plain[rate + 1 :], strict=True)),
            f"{line[-1]:.4f} and {plain[-1]:.4f} at {len(line) - 1} bits",
        ),
    )
