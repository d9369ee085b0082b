"""Two models in plain torch, as anybody would write them."""

import torch
from torch import Tensor, nn

DIM, HIDDEN = 16, (64, 32)


class Tables(nn.Module):
    """A table for each feature, with DLRM's start: the best start of full tables."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, DIM) for size in sizes)
        for table, size in zip(self.tables, sizes, strict=True):
            nn.init.uniform_(table.weight, -(size**-0.5), size**-0.5)

    def forward(self, ids: Tensor) -> Tensor:
        return torch.stack([table(column) for table, column in zip(self.tables, ids.unbind(1), strict=True)], dim=1)


def network(num_inputs: int, *hidden: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in zip((num_inputs, *hidden), hidden, strict=False):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    layers.append(nn.Linear(hidden[-1], 1))
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


class DeepFM(nn.Module):
    """Guo et al. (2017)."""

    def __init__(self, sizes: list[int], num_dense: int) -> None:
        super().__init__()
        self.embedding = Tables(sizes)
        self.first_order = nn.Parameter(torch.zeros(len(sizes), DIM))
        self.network = network(len(sizes) * DIM + num_dense, *HIDDEN)

    def forward(self, ids: Tensor, dense: Tensor) -> Tensor:
        vectors = self.embedding(ids)
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        linear = (vectors * self.first_order).sum((1, 2))
        output: Tensor = linear + pairs + self.network(torch.cat([vectors.flatten(1), dense], 1)).squeeze(1)
        return output


class DLRM(nn.Module):
    """Naumov et al. (2019): dot products of all pairs of vectors, and dense values, into a network."""

    def __init__(self, sizes: list[int], num_dense: int) -> None:
        super().__init__()
        self.embedding = Tables(sizes)
        self.bottom = nn.Sequential(nn.Linear(num_dense, DIM), nn.ReLU()) if num_dense else None
        num_vectors = len(sizes) + bool(num_dense)
        self.register_buffer("pairs", torch.tril_indices(num_vectors, num_vectors, -1), persistent=False)
        self.top = network(num_vectors * (num_vectors - 1) // 2 + (DIM if num_dense else 0), *HIDDEN)

    def forward(self, ids: Tensor, dense: Tensor) -> Tensor:
        vectors, inputs = self.embedding(ids), []
        if self.bottom is not None:
            inputs.append(self.bottom(dense))
            vectors = torch.cat([inputs[0].unsqueeze(1), vectors], 1)
        products = vectors @ vectors.transpose(1, 2)
        output: Tensor = self.top(torch.cat([products[:, self.pairs[0], self.pairs[1]], *inputs], 1)).squeeze(1)
        return output


MODELS: dict[str, type[DeepFM] | type[DLRM]] = {"deepfm": DeepFM, "dlrm": DLRM}
