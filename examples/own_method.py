"""A method of your own, outside the library: a factorised table, and what it costs. `test_own_method.py` tests it."""

import torch
from torch import Tensor
from torch.nn.functional import embedding

import cce
from cce.embeddings import Shapes, check_budget, new_parameter, normal_, output_variance, projection_


class FactorizedEmbedding(cce.Embedding):
    """`T = A · B`: a narrow vector for each id, and one projection for all of them (ALBERT, Lan et al. 2020)."""

    method = "factorized"

    def __init__(
        self,
        num_embeddings,
        embedding_dim,
        *,
        rank,
        padding_idx=None,
        sparse=False,
        generator=None,
        device=None,
        dtype=None,
    ):
        super().__init__(num_embeddings, embedding_dim, padding_idx=padding_idx, sparse=sparse)
        self.narrow = new_parameter((num_embeddings, rank), device=device, dtype=dtype)
        self.projection = new_parameter((rank, embedding_dim), device=device, dtype=dtype)
        self.reset_parameters(generator)

    def init_parameters(self, generator) -> None:
        normal_(self.narrow, variance=output_variance(self.embedding_dim), generator=generator)
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
    def size_for_budget(cls, num_embeddings, embedding_dim, num_params, options) -> dict[str, int]:
        check_budget(cls.method, num_params, num_embeddings + embedding_dim)
        return {"rank": num_params // (num_embeddings + embedding_dim)}

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
