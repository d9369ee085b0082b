"""A method of your own, outside the library: a factorised table, and what it costs. `test_own_method.py` tests it."""

import torch
from torch import Tensor
from torch.nn.functional import embedding

import cce
from cce.embeddings import Shapes, normal_, projection_


class FactorizedEmbedding(cce.embeddings.Embedding):
    """`T = A · B`: a narrow vector for each id, and one projection for all of them (ALBERT, Lan et al. 2020)."""

    method = "factorized"
    sized_by = "rank"

    def __init__(self, num_embeddings, embedding_dim, *, rank, **common):
        super().__init__(num_embeddings, embedding_dim, **common)
        self.make_parameters({"rank": rank}, common)

    def init_parameters(self, generator) -> None:
        normal_(self.narrow, variance=self.start_variance, generator=generator)
        projection_(self.projection, generator=generator)

    def embed(self, ids: Tensor) -> Tensor:
        return embedding(ids, self.narrow, sparse=self.sparse) @ self.projection

    def fit_to(self, weight: Tensor, *, generator=None) -> None:
        left, values, right = torch.linalg.svd(weight, full_matrices=False)
        rank = len(self.projection)
        with torch.no_grad():
            self.narrow.copy_(left[:, :rank] * values[:rank])
            self.projection.copy_(right[:rank])

    @classmethod
    def shapes(cls, num_embeddings, embedding_dim, arguments) -> Shapes:
        rank = arguments["rank"]
        return Shapes({"narrow": (num_embeddings, rank), "projection": (rank, embedding_dim)})


def main() -> None:
    table = cce.create_embedding(FactorizedEmbedding, 10_000, 16, compression=4, seed=0)
    print(table)
    print(cce.summary(table))


if __name__ == "__main__":
    main()
