"""Compress a model that knows nothing of this library: a small DLRM with a table per feature."""

import torch
from torch import nn

import cce

VOCABULARIES = {"user": 50_000, "item": 20_000, "country": 200}


class DLRM(nn.Module):
    """Dense features through an MLP, categorical ones through tables; pairwise dot products; an MLP on top."""

    def __init__(self, num_dense: int, dim: int) -> None:
        super().__init__()
        self.tables = nn.ModuleDict({name: nn.Embedding(size, dim) for name, size in VOCABULARIES.items()})
        self.bottom = nn.Sequential(nn.Linear(num_dense, dim), nn.ReLU())
        num_vectors = len(VOCABULARIES) + 1
        self.top = nn.Sequential(nn.Linear(dim + num_vectors * (num_vectors - 1) // 2, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        first = self.bottom(dense)
        looked_up = [table(column) for table, column in zip(self.tables.values(), ids.unbind(1), strict=True)]
        vectors = torch.stack([first, *looked_up], dim=1)  # (batch, num_vectors, dim)
        rows, columns = torch.triu_indices(vectors.shape[1], vectors.shape[1], offset=1)
        pairs = (vectors @ vectors.mT)[:, rows, columns]
        return self.top(torch.cat([first, pairs], dim=1)).squeeze(1)


def main() -> None:
    model = DLRM(num_dense=4, dim=16)
    print("Plan:")
    print(cce.compress(model, dry_run=True))

    cce.compress(model, seed=0)
    optimizer = cce.optim.Adagrad(model, lr=0.01)  # made after compress, not before

    g = torch.Generator().manual_seed(0)
    ids = torch.stack([torch.randint(0, size, (64,), generator=g) for size in VOCABULARIES.values()], dim=1)
    dense, labels = torch.randn(64, 4, generator=g), torch.randint(2, (64,), generator=g).float()
    for _ in range(5):  # an id has a row from its second occurrence on
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(dense, ids), labels).backward()
        optimizer.step()
    print("\nCompressed, after five steps:")
    print(cce.summary(model, optimizer))
    print("\nFinalized:")
    print(cce.finalize(model, seed=0))


if __name__ == "__main__":
    main()
