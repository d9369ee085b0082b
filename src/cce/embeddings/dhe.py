"""Deep hash embeddings: many hashes of the id in [-1, 1], then a small network.

Kang et al., "Learning to embed categorical features without embedding tables for recommendation" (KDD 2021), in the
form that the CCE paper sizes: Mish, as many hashes as the layers are wide, an input layer, two hidden layers and an
output layer, no biases. `H` is dense and random; what follows is not linear.
"""

import math
from itertools import pairwise
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from cce.embeddings.base import Embedding, check_budget
from cce.embeddings.initialization import normal_
from cce.embeddings.options import CommonOptions, Options, optional, rules, whole
from cce.embeddings.sizing import Shapes
from cce.indexing import UnitInterval

NUM_HIDDEN = 2  # the paper's compromise between the published five layers and fewer, which it found to be better
NUM_PROBES = 1024  # ids on which the starting scale is measured
TOLERATED_EXCESS = 0.01  # the paper rounds the width to the nearest: 64,192 parameters for a budget of 64,000
NOTHING = 1e-9  # of a mean square: what is left of it after a projection is rounding


class DeepHashEmbedding(Embedding):
    """`T[x] = W_out · mish(… mish(W_in · u(x)))` with hashes `u(x)` and layers of `width`.

    num_hidden: layers of `width × width` between the first and the last; the paper has 2.
    num_hashes: length of `u(x)`; as many as layers are wide if it is not given, as in the paper.

    Every id touches every weight, so its gradients are dense: `sparse=True` is rejected.
    """

    method = "dhe"
    takes_any_id = True
    layers: nn.ParameterList
    option_checks = rules(width=whole(1), num_hidden=whole(0, 64), num_hashes=optional(whole(1)))

    def __init__(
        self,
        num_embeddings: int | None,
        embedding_dim: int,
        *,
        width: int,
        num_hidden: int = NUM_HIDDEN,
        num_hashes: int | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, **common)
        if self.sparse:
            raise ValueError("sparse must be False for method 'dhe': every id touches all of its weights.")
        options = self.check_options(width=width, num_hidden=num_hidden, num_hashes=num_hashes)
        self.hash = UnitInterval(num_hashes or width, device="meta")
        self.make_parameters(options, common)

    def init_parameters(self, generator: torch.Generator | None) -> None:
        """Normal values, scaled layer by layer."""
        for layer in self.layers:
            normal_(layer, variance=1, generator=generator)
        self._scale_start()

    def embed(self, ids: Tensor) -> Tensor:
        *hidden, last = self.layers
        activations = self.hash(ids, dtype=last.dtype)
        for layer in hidden:
            activations = functional.mish(functional.linear(activations, layer))
        return functional.linear(activations, last)

    @classmethod
    def shapes(cls, num_embeddings: int | None, embedding_dim: int, arguments: Options) -> Shapes:
        width = arguments["width"]
        num_hashes = arguments["num_hashes"] or width
        widths = [num_hashes] + [width] * (arguments["num_hidden"] + 1) + [embedding_dim]
        layers = {f"layers.{index}": (after, before) for index, (before, after) in enumerate(pairwise(widths))}
        return Shapes(layers, num_hashes=num_hashes)

    @classmethod
    def size_for_budget(
        cls, num_embeddings: int | None, embedding_dim: int, num_params: int, options: Options
    ) -> Options:
        """The root of `3 width² + embedding_dim · width = num_params`, rounded as in the paper or as options say."""

        def count(width: int) -> int:
            return cls.shapes(num_embeddings, embedding_dim, options | {"width": width}).num_params

        check_budget(cls.method, num_params, count(1))
        squares = options["num_hidden"] + (options["num_hashes"] is None)
        linear = embedding_dim + (options["num_hashes"] or 0)
        root = num_params / linear
        if squares:
            root = (math.sqrt(linear**2 + 4 * squares * num_params) - linear) / (2 * squares)
        width = max(1, round(root))
        return {"width": width if count(width) <= num_params * (1 + TOLERATED_EXCESS) else int(root)}

    @torch.no_grad()
    def _scale_start(self) -> None:
        """Give each layer's output mean square 1 on a sample of ids, and the last one mean 0 and the common variance.

        Measured rather than derived: Mish has no closed form for it, and its outputs are not centred.
        """
        num_ids = self.num_embeddings or NUM_PROBES
        probes = torch.linspace(0, num_ids - 1, min(NUM_PROBES, num_ids), dtype=torch.float64, device="cpu")
        *hidden, last = self.layers
        ids = probes.long().to(last.device)
        activations = self.hash(ids, dtype=torch.float64)  # so that no thread count shows in the result
        for layer in hidden:
            outputs = functional.linear(activations, layer.double())
            scale = outputs.square().mean().rsqrt()
            layer.mul_(scale)
            activations = functional.mish(outputs * scale)
        centred = _without_direction(last.double(), activations.mean(0))
        mean_square = functional.linear(activations, centred).square().mean()
        if mean_square <= NOTHING * functional.linear(activations, last.double()).square().mean():
            centred = last.double()  # all ids are alike, or differ in size only
            mean_square = functional.linear(activations, centred).square().mean()
        last.copy_(centred * (self.start_variance / mean_square).sqrt())


def _without_direction(rows: Tensor, direction: Tensor) -> Tensor:
    return rows - torch.outer(rows @ direction, direction) / direction.square().sum()
