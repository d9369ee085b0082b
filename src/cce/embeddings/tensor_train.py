"""Tensor train: a vector is a product of small matrices, one for each digit of the id.

Yin et al., "TT-Rec: tensor train compression for deep learning recommendation models" (MLSys 2021), after Oseledets,
"Tensor-train decomposition" (2011). Ids are split into three mixed-radix digits and the embedding dimension into three
factors; `T[i, j] = G_1[i_1, j_1] · G_2[i_2, j_2] · G_3[i_3, j_3]` with cores of `rank` between them.
"""

import math
from typing import Unpack

import torch
from torch import Tensor, nn

from cce.embeddings.base import Embedding, check_budget, check_weight
from cce.embeddings.initialization import normal_, output_variance, scale_factor
from cce.embeddings.options import CommonOptions, Options, rules, wholes
from cce.embeddings.sizing import Shapes
from cce.indexing import balanced_radices, mixed_radix_digits
from cce.kernels import gather_rows

NUM_CORES = 3  # as in TT-Rec
MAX_RANK_STRETCH = 1.5  # the two ranks may differ this much, to come nearer to a budget


class TensorTrainEmbedding(Embedding):
    """Three cores: `(n_1, d_1·r_1)`, `(n_2, r_1·d_2·r_2)` and `(n_3, r_2·d_3)`, with `ranks = (r_1, r_2)`."""

    method = "tt"
    cores: nn.ParameterList
    option_checks = rules(ranks=wholes(2))

    def __init__(
        self, num_embeddings: int, embedding_dim: int, *, ranks: tuple[int, int], **common: Unpack[CommonOptions]
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, **common)
        options, self.ranks = self.check_options(ranks=ranks), ranks
        self.radices = balanced_radices(num_embeddings, NUM_CORES)
        self.factors = dimension_factors(embedding_dim)
        self.make_parameters(options, common)

    def init_parameters(self, generator: torch.Generator | None) -> None:
        """An output sums r_1 · r_2 products of three values, one from each core; the last core carries the scale."""
        variance = (output_variance(self.embedding_dim) / math.prod(self.ranks)) ** (1 / NUM_CORES)
        for core in self.cores:
            normal_(core, variance=variance, generator=generator)
        scale_factor(self.cores[-1], self.start_variance, self.embedding_dim)

    def embed(self, ids: Tensor) -> Tensor:
        digits = mixed_radix_digits(ids, self.radices).unbind(-1)
        first, middle, last = (
            gather_rows(core, digit, sparse=self.sparse) for core, digit in zip(self.cores, digits, strict=True)
        )
        (d1, d2, d3), (r1, r2) = self.factors, self.ranks
        left = first.view(-1, d1, r1) @ middle.view(-1, r1, d2 * r2)  # (n, d1, d2·r2)
        return (left.view(-1, d1 * d2, r2) @ last.view(-1, r2, d3)).flatten(1)

    @torch.no_grad()
    def fit_to(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """Oseledets' TT-SVD of the table, with zero rows for the ids that the digits could name but do not."""
        check_weight(self, weight)
        (n1, n2, n3), (d1, d2, d3), (r1, r2) = self.radices, self.factors, self.ranks
        padded = weight.new_zeros(n1 * n2 * n3, self.embedding_dim, dtype=torch.float64)
        padded[: len(weight)] = weight
        tensor = padded.view(n3, n2, n1, d1, d2, d3).permute(2, 3, 1, 4, 0, 5)  # (n1, d1, n2, d2, n3, d3)
        first, rest = _split_rank(tensor.reshape(n1 * d1, -1), r1)
        middle, last = _split_rank(rest.reshape(r1 * n2 * d2, n3 * d3), r2)
        self.cores[0].copy_(first.reshape(n1, d1 * r1))
        self.cores[1].copy_(middle.reshape(r1, n2, d2, r2).permute(1, 0, 2, 3).reshape(n2, -1))
        self.cores[2].copy_(last.reshape(r2, n3, d3).permute(1, 0, 2).reshape(n3, -1))

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Options) -> Shapes:
        widths = _widths(dimension_factors(embedding_dim), arguments["ranks"])
        cores = zip(balanced_radices(num_embeddings, NUM_CORES), widths, strict=True)
        return Shapes({f"cores.{index}": core for index, core in enumerate(cores)})

    @classmethod
    def size_for_budget(cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Options) -> Options:
        """The pair of nearly equal ranks that spends most of the budget."""
        radices, factors = balanced_radices(num_embeddings, NUM_CORES), dimension_factors(embedding_dim)

        def count(ranks: tuple[int, int]) -> int:
            return sum(radix * width for radix, width in zip(radices, _widths(factors, ranks), strict=True))

        check_budget(cls.method, num_params, count((1, 1)))
        equal = 1
        while count((equal + 1, equal + 1)) <= num_params:
            equal += 1
        candidates = [
            (first, second)
            for first in range(max(1, int(equal / MAX_RANK_STRETCH)), int(equal * MAX_RANK_STRETCH) + 2)
            if (second := _second_rank(radices, factors, first, num_params)) >= 1
            and max(first, second) <= MAX_RANK_STRETCH * min(first, second) + 1
        ]
        return {"ranks": max(candidates, key=count)}


def dimension_factors(embedding_dim: int) -> tuple[int, int, int]:
    """Three factors of `embedding_dim`, as near to each other as its divisors allow, smallest first."""
    triples = (
        (first, second, embedding_dim // first // second)
        for first in _divisors(embedding_dim)
        for second in _divisors(embedding_dim // first)
    )
    return min(
        (triple for triple in triples if list(triple) == sorted(triple)), key=lambda triple: (max(triple), sum(triple))
    )


def _divisors(value: int) -> list[int]:
    return [n for n in range(1, value + 1) if value % n == 0]


def _widths(factors: tuple[int, int, int], ranks: tuple[int, int]) -> tuple[int, int, int]:
    return factors[0] * ranks[0], ranks[0] * factors[1] * ranks[1], ranks[1] * factors[2]


def _second_rank(radices: tuple[int, ...], factors: tuple[int, int, int], first: int, num_params: int) -> int:
    left = num_params - radices[0] * factors[0] * first
    return max(0, left) // (radices[1] * factors[1] * first + radices[2] * factors[2])


def _split_rank(matrix: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """`matrix ≈ left · right` with `rank` columns in `left`, the weight shared out; missing directions are zero."""
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    num_kept, missing = min(rank, len(values)), max(0, rank - len(values))
    root = values[:num_kept].sqrt()
    left, right = left[:, :num_kept] * root, root.unsqueeze(-1) * right[:num_kept]
    return nn.functional.pad(left, (0, missing)), nn.functional.pad(right, (0, 0, 0, missing))
