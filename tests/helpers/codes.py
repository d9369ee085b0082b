"""A small table of codes with shared rows, and gradients of its rows."""

import torch

import cce


def table_of(**options):
    options = {"num_learned": 300, "num_shared": 20} | options
    return cce.QuantizedEmbedding(1000, 6, generator=torch.Generator().manual_seed(0), **options)


def batch(count=500, seed=0):
    """Rows, −1 among them, and a gradient for each."""
    g = torch.Generator().manual_seed(seed)
    return torch.randint(-1, 320, (count,), generator=g), torch.randn(count, 6, generator=g)
