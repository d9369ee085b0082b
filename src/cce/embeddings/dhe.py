"""Deep hash embeddings: many hashes of the id in [-1, 1], then a small network.

Kang et al., "Learning to embed categorical features without embedding tables for recommendation" (KDD 2021), in the
form that the CCE paper sizes: Mish, as many hashes as the layers are wide, an input layer, two hidden layers and an
output layer, no biases. `H` is dense and random; what follows is not linear.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cce.embeddings.base import Embedding, check_budget
from cce.embeddings.options import rules, whole
from cce.embeddings.shapes import Shapes
from cce.indexing import UnitInterval

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cce.embeddings.initialization import StartScale

NUM_HIDDEN = 2
NUM_PROBES = 1024  # ids on which the starting scale is measured
TOLERATED_EXCESS = 0.01  # the paper rounds the width to the nearest: 64,192 parameters for a budget of 64,000


class DeepHashEmbedding(Embedding):
    """`T[x] = W_out · mish(… mish(W_in · u(x)))` with `width` hashes `u(x)` and layers of `width`.

    Every id touches every weight, so its gradients are dense: `sparse=True` is rejected.
    """

    method = "dhe"
    option_checks = rules(width=whole(1))

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        width: int,
        padding_idx: int | None = None,
        sparse: bool = False,
        start_scale: StartScale = "uniform",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx=padding_idx, sparse=sparse, start_scale=start_scale)
        if sparse:
            raise ValueError("sparse must be False for method 'dhe': every id touches all of its weights.")
        self.check_options(width=width)
        self.hash = UnitInterval(width, generator=generator)
        shapes = self.shapes(num_embeddings, embedding_dim, {"width": width}).parameters.values()
        self.layers = nn.ParameterList(torch.randn(shape, generator=generator, device="cpu") for shape in shapes)
        self._scale_start()

    def embed(self, ids: Tensor) -> Tensor:
        """The hashes, sent through the network."""
        *hidden, last = self.layers
        activations = self.hash(ids, dtype=last.dtype)
        for layer in hidden:
            activations = functional.mish(functional.linear(activations, layer))
        return functional.linear(activations, last)

    def fit_to(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """Not supported: a network has no closed form for it."""
        del weight, generator
        raise ValueError("method 'dhe' cannot start from a trained table: its network must be trained.")

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Mapping[str, Any]) -> Shapes:
        """The layers of the network, and its hash functions."""
        del num_embeddings
        widths = [arguments["width"]] * (NUM_HIDDEN + 2) + [embedding_dim]
        layers = {f"layers.{index}": (after, before) for index, (before, after) in enumerate(pairwise(widths))}
        return Shapes(layers, num_hashes=arguments["width"])

    @classmethod
    def size_for_budget(
        cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The root of `3 width² + embedding_dim · width = num_params`, rounded as in the paper."""
        del options

        def count(width: int) -> int:
            return cls.shapes(num_embeddings, embedding_dim, {"width": width}).num_params

        check_budget(cls.method, num_params, count(1))
        squares = NUM_HIDDEN + 1
        root = (math.sqrt(embedding_dim**2 + 4 * squares * num_params) - embedding_dim) / (2 * squares)
        width = max(1, round(root))
        if count(width) > num_params * (1 + TOLERATED_EXCESS):
            width = int(root)
        return {"width": width}

    @torch.no_grad()
    def _scale_start(self) -> None:
        """Give each layer's output mean square 1 on a sample of ids, and the last one mean 0 and the common variance.

        Measured rather than derived: Mish has no closed form for it, and its outputs are not centred.
        """
        ids = torch.linspace(
            0, self.num_embeddings - 1, min(NUM_PROBES, self.num_embeddings), dtype=torch.float64, device="cpu"
        )
        activations = self.hash(ids.long(), dtype=torch.float64)  # double, so that no thread count shows in the result
        *hidden, last = self.layers
        for layer in hidden:
            outputs = functional.linear(activations, layer.double())
            scale = outputs.square().mean().rsqrt()
            layer.mul_(scale)
            activations = functional.mish(outputs * scale)
        centred = _without_direction(last.double(), activations.mean(0))
        if self.hash.num_hashes == 1 or len(ids) == 1:  # nothing would be left
            centred = last.double()
        mean_square = functional.linear(activations, centred).square().mean()
        last.copy_(centred * (self.start_variance / mean_square).sqrt())


def _without_direction(rows: Tensor, direction: Tensor) -> Tensor:
    return rows - torch.outer(rows @ direction, direction) / direction.square().sum()
