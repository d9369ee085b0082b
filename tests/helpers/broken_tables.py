"""Tables that break one rule each: contracts of them must fail, and say where."""

from __future__ import annotations

from dataclasses import replace

import torch

import cce
from cce.testing import LinearContract


class Sound(cce.HashingTrickEmbedding):
    """A table outside the registry that breaks no rule."""

    method = "sound"


class WrongFormula(Sound):
    def embed(self, ids, shape=None):
        return 1.001 * super().embed(ids, shape)


class WrongDense(Sound):
    def to_dense(self, ids=None):
        return torch.zeros_like(super().to_dense(ids))


class WrongGradient(Sound):
    def embed(self, ids, shape=None):
        vectors = super().embed(ids, shape)
        return 2 * vectors.detach() - vectors  # the right values, and the gradient upside down


class PaddingIsLookedUp(Sound):
    def forward(self, input):
        return super().embed(input.reshape(-1).clamp(0, 2)).view(*input.shape, -1) + super().forward(input)


class AlwaysDouble(Sound):
    def embed(self, ids, shape=None):
        return super().embed(ids, shape).double()


class OwnRandomness(Sound):
    def __init__(self, *args, generator=None, **options):
        super().__init__(*args, **options)

    __init__.__signature__ = cce.HashingTrickEmbedding.__init__.__signature__ if False else None


class WideStart(Sound):
    def __init__(self, num_embeddings, embedding_dim, *, num_rows, padding_idx=None, sparse=False, generator=None):
        super().__init__(
            num_embeddings,
            embedding_dim,
            num_rows=num_rows,
            padding_idx=padding_idx,
            sparse=sparse,
            generator=generator,
        )
        with torch.no_grad():
            self.codebook.mul_(2)
