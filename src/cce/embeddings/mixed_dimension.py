"""Mixed dimensions: frequent ids get wide vectors, rare ids narrow ones that a projection widens.

Ginart et al., "Mixed dimension embeddings with application to memory-efficient recommendation systems" (ISIT 2021).
Ids are numbered by falling frequency, so the id is the rank; under Zipf's law its popularity falls as `1 / rank`, and
the dimension as `popularity^temperature`, rounded to `embedding_dim` halved some number of times.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Unpack

import torch
from torch import Tensor, nn

from cce.checks import check_range
from cce.embeddings.base import Embedding, check_budget, check_weight
from cce.embeddings.initialization import normal_, projection_
from cce.embeddings.low_rank import low_rank_factors
from cce.embeddings.options import CommonOptions, Options, rules, wholes, within
from cce.embeddings.sizing import Shapes
from cce.kernels import gather_rows

TEMPERATURE = 0.3  # between 0, all dimensions equal, and 1, dimensions as steep as popularity
BISECTIONS = 100  # halvings of [0, num_embeddings]: to the last bit


class MixedDimensionEmbedding(Embedding):
    """`T[x] = N_b[x − start_b] · P_b`, where block `b` of consecutive ids has vectors of `block_dims[b]` values.

    A block of full dimension has no projection.
    """

    method = "mixed-dim"
    narrow: nn.ParameterList
    option_checks = rules(block_sizes=wholes(), block_dims=wholes(), temperature=within(0.05, 1))

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        block_sizes: Sequence[int],
        block_dims: Sequence[int],
        temperature: float = TEMPERATURE,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, **common)
        options = self.check_options(block_sizes=block_sizes, block_dims=block_dims, temperature=temperature)
        _check_blocks(block_sizes, block_dims, num_embeddings, embedding_dim)
        self.temperature = temperature  # what the blocks were sized with
        self.starts = tuple(accumulate(block_sizes, initial=0))[:-1]
        self.projections = nn.ParameterList()  # there may be none
        self.make_parameters(options, common)

    def init_parameters(self, generator: torch.Generator | None) -> None:
        """The narrow tables carry the scale."""
        for narrow in self.narrow:
            normal_(narrow, variance=self.start_variance, generator=generator)
        for projection in self.projections:
            projection_(projection, generator=generator)

    def embed(self, ids: Tensor) -> Tensor:
        """Every block answers for the ids it holds; shapes never depend on which ids came."""
        wide = len(self.narrow) - len(self.projections)  # 1 if the first block needs no projection
        vectors = None
        for block, (start, narrow) in enumerate(zip(self.starts, self.narrow, strict=True)):
            inside = gather_rows(narrow, (ids - start).clamp(0, len(narrow) - 1), sparse=self.sparse)
            if block >= wide:
                inside = inside @ self.projections[block - wide]
            vectors = inside if vectors is None else torch.where((ids >= start).unsqueeze(-1), inside, vectors)
        assert vectors is not None  # there is at least one block
        return vectors

    @torch.no_grad()
    def fit_to(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """The best narrow table and projection of each block, by singular values."""
        check_weight(self, weight)
        wide = len(self.narrow) - len(self.projections)
        for block, (start, narrow) in enumerate(zip(self.starts, self.narrow, strict=True)):
            part = weight[start : start + len(narrow)]
            if block < wide:
                narrow.copy_(part)
            else:
                factors = low_rank_factors(part, narrow.shape[1])
                narrow.copy_(factors[0])
                self.projections[block - wide].copy_(factors[1])

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Options) -> Shapes:
        blocks = list(zip(arguments["block_sizes"], arguments["block_dims"], strict=True))
        projections = [(dim, embedding_dim) for _, dim in blocks if dim < embedding_dim]
        narrow = {f"narrow.{index}": block for index, block in enumerate(blocks)}
        return Shapes(narrow | {f"projections.{index}": shape for index, shape in enumerate(projections)})

    @classmethod
    def size_for_budget(cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Options) -> Options:
        """The most full-width ids, by bisection; each halving of the width reaches `2^(1/temperature)` as far."""

        def sizes(scale: float) -> Options:
            block_sizes, block_dims = _blocks(num_embeddings, embedding_dim, scale, options["temperature"])
            return {"block_sizes": block_sizes, "block_dims": block_dims}

        def count(scale: float) -> int:
            return cls.shapes(num_embeddings, embedding_dim, sizes(scale)).num_params

        check_budget(cls.method, num_params, count(0))
        low, high = 0.0, float(num_embeddings)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if count(middle) <= num_params else (low, middle)
        return sizes(low)


def _blocks(num_ids: int, full_dim: int, scale: float, temperature: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and dimensions of the blocks when ids below `scale · 2^(level / temperature)` are halved `level` times."""
    dims = [full_dim >> level for level in range(full_dim.bit_length())]
    ends = [min(num_ids, int(scale * 2 ** (level / temperature))) for level in range(len(dims) - 1)]
    sizes = [end - start for start, end in pairwise([0, *ends, num_ids])]
    nonempty = [(size, dim) for size, dim in zip(sizes, dims, strict=True) if size > 0]
    return tuple(size for size, _ in nonempty), tuple(dim for _, dim in nonempty)


def _check_blocks(sizes: Sequence[int], dims: Sequence[int], num_ids: int, full_dim: int) -> None:
    if len(sizes) != len(dims) or not sizes:
        raise ValueError(f"block_sizes and block_dims must be equally long and not empty, got {sizes} and {dims}.")
    if sum(sizes) != num_ids:
        raise ValueError(f"block_sizes must sum to num_embeddings={num_ids}, got {sizes}, which sum to {sum(sizes)}.")
    for size, dim in zip(sizes, dims, strict=True):
        check_range("block_sizes", size, 1, num_ids + 1)
        check_range("block_dims", dim, 1, full_dim + 1)
    if list(dims) != sorted(dims, reverse=True) or full_dim in dims[1:]:
        raise ValueError(f"block_dims must fall, got {dims}.")
