"""Deep hash embeddings: many hashes of the id in [-1, 1], then a small network.

Kang et al., "Learning to embed categorical features without embedding tables for recommendation" (KDD 2021), in the
form that the CCE paper sizes: Mish, as many hashes as the layers are wide, an input layer, two hidden layers and an
output layer, no biases. `H` is dense and random; what follows is not linear. The paper's appendix "Hashing" speculates
that a few ones could replace the many hashes, "something more like Hash Embeddings with an MLP on top": `num_ones`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from cce.embeddings.base import Embedding, check_budget
from cce.embeddings.initialization import normal_
from cce.embeddings.options import CommonOptions, Options, optional, rules, whole
from cce.embeddings.sizing import Shapes
from cce.indexing import MultiplyShift, UnitInterval
from cce.kernels import gather_sum

NUM_HIDDEN = 2  # the paper's compromise between the published five layers and fewer, which it found to be better
NUM_PROBES = 1024  # ids on which the starting scale is measured
TOLERATED_EXCESS = 0.01  # the paper rounds the width to the nearest: 64,192 parameters for a budget of 64,000
NOTHING = 1e-9  # of a mean square: what is left of it after a projection is rounding


class DeepHashEmbedding(Embedding):
    """`T[x] = W_out · mish(… mish(W_in · u(x)))` with hashes `u(x)` and layers of `width`.

    num_hidden: layers of `width × width` between the first and the last; the paper has 2.
    num_hashes: length of `u(x)`; as many as layers are wide if it is not given, as in the paper.
    num_ones: if given, `u(x)` is sparse: this many ones, one in each segment of equal length, and zeros elsewhere.
        The first layer is then a table of `num_hashes` rows, of which an id sums `num_ones`.

    Every id touches every weight, so its gradients are dense: `sparse=True` is rejected.
    """

    method = "dhe"
    layers: nn.ParameterList
    option_checks = rules(
        width=whole(1), num_hidden=whole(0, 64), num_hashes=optional(whole(1)), num_ones=optional(whole(1))
    )

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        width: int,
        num_hidden: int = NUM_HIDDEN,
        num_hashes: int | None = None,
        num_ones: int | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, **common)
        if self.sparse:
            raise ValueError("sparse must be False for method 'dhe': every id touches all of its weights.")
        options = self.check_options(width=width, num_hidden=num_hidden, num_hashes=num_hashes, num_ones=num_ones)
        num_hashes = num_hashes or width
        check_segments(num_hashes, num_ones)
        self.hash: UnitInterval | MultiplyShift = (
            UnitInterval(num_hashes, device="meta")
            if num_ones is None
            else MultiplyShift(num_ones, num_hashes // num_ones, device="meta")
        )
        self.make_parameters(options, common)

    def init_parameters(self, generator: torch.Generator | None) -> None:
        """Normal values, scaled layer by layer."""
        for layer in self.layers:
            normal_(layer, variance=1, generator=generator)
        self._scale_start()

    def embed(self, ids: Tensor) -> Tensor:
        """The hashes, sent through the network."""
        first, *hidden, last = self.layers
        activations = functional.mish(self._sketch(ids, first))
        for layer in hidden:
            activations = functional.mish(functional.linear(activations, layer))
        return functional.linear(activations, last)

    def fit_to(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """Not supported: a network has no closed form for it."""
        raise ValueError("method 'dhe' cannot start from a trained table: its network must be trained.")

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Options) -> Shapes:
        """The layers of the network, and its hash functions."""
        width, num_ones = arguments["width"], arguments["num_ones"]
        num_hashes = arguments["num_hashes"] or width
        widths = [num_hashes] + [width] * (arguments["num_hidden"] + 1) + [embedding_dim]
        layers = {f"layers.{index}": (after, before) for index, (before, after) in enumerate(pairwise(widths))}
        if num_ones is not None:
            layers["layers.0"] = (num_hashes, width)  # rows to be gathered
        return Shapes(layers, num_hashes=num_ones or num_hashes)

    @classmethod
    def size_for_budget(cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Options) -> Options:
        """The root of `3 width² + embedding_dim · width = num_params`, rounded as in the paper or as options say.

        With `num_ones`, and `num_hashes` left to the budget, half of it goes to the rows of the first layer.
        """
        num_ones, num_hashes = options["num_ones"], options["num_hashes"]
        if num_ones is None or num_hashes is not None:
            return {"width": cls._width(num_embeddings, embedding_dim, num_params, options)}
        given = dict(options) | {"num_hashes": num_ones}
        check_budget(cls.method, num_params, cls._count(num_embeddings, embedding_dim, given, width=1))
        squares = options["num_hidden"]
        width = max(1, int(_root(squares, embedding_dim, num_params / 2)))
        left = num_params - squares * width**2 - embedding_dim * width
        return {"width": width, "num_hashes": left // (width * num_ones) * num_ones}

    @classmethod
    def _width(cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Mapping[str, Any]) -> int:
        """The width that spends the budget, for given hashes or as many as layers are wide."""
        size = num_embeddings, embedding_dim, options
        check_budget(cls.method, num_params, cls._count(*size, width=1))
        squares = options["num_hidden"] + (options["num_hashes"] is None)
        root = _root(squares, embedding_dim + (options["num_hashes"] or 0), num_params)
        width = max(1, round(root))
        return width if cls._count(*size, width=width) <= num_params * (1 + TOLERATED_EXCESS) else int(root)

    @classmethod
    def _count(cls, num_embeddings: int, embedding_dim: int, options: Mapping[str, Any], *, width: int) -> int:
        return cls.shapes(num_embeddings, embedding_dim, dict(options) | {"width": width}).num_params

    def _sketch(self, ids: Tensor, first: Tensor) -> Tensor:
        """`W_in · u(x)`: a product with dense hashes, or a sum of rows where hashes are sparse."""
        if isinstance(self.hash, UnitInterval):
            return functional.linear(self.hash(ids, dtype=first.dtype), first)
        rows = self.hash.stacked(ids.reshape(-1)).unsqueeze(1)  # (n, 1, num_ones)
        return gather_sum(first, rows).view(*ids.shape, first.shape[1])

    @torch.no_grad()
    def _scale_start(self) -> None:
        """Give each layer's output mean square 1 on a sample of ids, and the last one mean 0 and the common variance.

        Measured rather than derived: Mish has no closed form for it, and its outputs are not centred.
        """
        num_probes = min(NUM_PROBES, self.num_embeddings)
        probes = torch.linspace(0, self.num_embeddings - 1, num_probes, dtype=torch.float64, device="cpu")
        *hidden, last = self.layers
        ids = probes.long().to(last.device)
        activations: Tensor | None = None
        for layer in hidden:  # in double, so that no thread count shows in the result
            wide = layer.double()
            outputs = self._sketch(ids, wide) if activations is None else functional.linear(activations, wide)
            scale = outputs.square().mean().rsqrt()
            layer.mul_(scale)
            activations = functional.mish(outputs * scale)
        assert activations is not None  # there is a first layer
        centred = _without_direction(last.double(), activations.mean(0))
        mean_square = functional.linear(activations, centred).square().mean()
        if mean_square <= NOTHING * functional.linear(activations, last.double()).square().mean():
            centred = last.double()  # all ids are alike, or differ in size only
            mean_square = functional.linear(activations, centred).square().mean()
        last.copy_(centred * (self.start_variance / mean_square).sqrt())


def check_segments(num_hashes: int, num_ones: int | None) -> None:
    """Reject sparse hashes that cannot be cut into a segment for each one."""
    if num_ones is not None and num_hashes % num_ones:
        raise ValueError(f"num_hashes must be a multiple of num_ones={num_ones}, got {num_hashes}.")


def _root(squares: int, linear: float, total: float) -> float:
    """The positive `w` with `squares · w² + linear · w = total`."""
    return total / linear if squares == 0 else (math.sqrt(linear**2 + 4 * squares * total) - linear) / (2 * squares)


def _without_direction(rows: Tensor, direction: Tensor) -> Tensor:
    return rows - torch.outer(rows @ direction, direction) / direction.square().sum()
