"""Generalised matrix factorisation: a weighted dot product of two vectors.

He et al., "Neural collaborative filtering" (WWW 2017).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class GMF(nn.Module):
    """Vectors `(batch, 2, embedding_dim)` to logits `(batch)`: `w · (u ⊙ v) + b`, starting as the plain dot product."""

    def __init__(self, embedding_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(embedding_dim))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, vectors: Tensor) -> Tensor:
        """Logits `(batch)`."""
        return vectors.prod(dim=1) @ self.weight + self.bias
