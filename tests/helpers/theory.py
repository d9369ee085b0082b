"""Problems and matrices for tests of theory."""

import torch

from cce_lab.theory import LeastSquares


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def problem_of(num_examples, num_embeddings, embedding_dim, *, spectrum=None, seed=0):
    """A normal X, or one with these singular values, and a normal Y."""
    x = normal(num_examples, num_embeddings, seed=seed)
    if spectrum is not None:
        u, _, vh = torch.linalg.svd(x, full_matrices=False)
        x = (u * torch.as_tensor(spectrum, dtype=torch.float64)) @ vh
    return LeastSquares(x, normal(num_examples, embedding_dim, seed=seed + 1))


def planted_problem(num_examples, num_embeddings, embedding_dim, *, num_clusters, noise=0.0, seed=0):
    """Y of a table whose rows are `num_clusters` different ones, and the cluster of each id."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_examples, num_embeddings, generator=generator, dtype=torch.float64)
    centers = torch.randn(num_clusters, embedding_dim, generator=generator, dtype=torch.float64)
    clusters = torch.arange(num_embeddings) % num_clusters
    own = torch.randn(num_examples, embedding_dim, generator=generator, dtype=torch.float64)
    return LeastSquares(x, x @ centers[clusters] + noise * own), clusters


def dense_matrix(factor):
    """H as a matrix, number by number."""
    matrix = torch.zeros(len(factor.rows), factor.num_rows, dtype=torch.float64)
    for row, (indices, weights) in enumerate(zip(factor.rows.tolist(), factor.weights.tolist(), strict=True)):
        for index, weight in zip(indices, weights, strict=True):
            matrix[row, index] += weight
    return matrix
