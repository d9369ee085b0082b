"""Compress a model in a loop of your own: four added lines, and the full table beside it.

A plain DeepFM-like model on synthetic clicks, whose ids are numbered in the order in which they appear, as a dictionary
that grows with a log would number them.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import cce
from cce.data import Sample, SyntheticClicks

SIZES, DIM, BATCH, NUM_EPOCHS = (8_000, 2_000), 16, 512, 3


class DeepFM(nn.Module):
    """Dot products of all pairs of vectors, and a network beside them. It knows nothing of this library."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, DIM) for size in SIZES)
        for table in self.tables:
            nn.init.normal_(table.weight, std=0.05)
        self.deep = nn.Sequential(nn.Linear(len(SIZES) * DIM, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, ids: Tensor) -> Tensor:
        looked_up = [table(column) for table, column in zip(self.tables, ids.unbind(1), strict=True)]
        vectors = torch.stack(looked_up, dim=1)  # (batch, features, DIM)
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        return pairs + self.deep(vectors.flatten(1)).squeeze(1)


def by_appearance(train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    """The same ids, numbered in the order in which they first appear."""
    numbers: dict[int, int] = {}
    return tuple(torch.tensor([numbers.setdefault(id_, len(numbers)) for id_ in ids.tolist()]) for ids in (train, test))


def number_features(train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    columns = [by_appearance(*pair) for pair in zip(train.unbind(1), test.unbind(1), strict=True)]
    return tuple(torch.stack(split, dim=1) for split in zip(*columns, strict=True))


def train_model(ids: Tensor, labels: Tensor, *, compressed: bool) -> DeepFM:
    torch.manual_seed(0)
    model = DeepFM()
    if compressed:
        cce.compress(model, min_params=1)  # added: the tables become int8 rows
        optimizer = cce.optim.Adam(model, lr=0.003)  # added: torch's Adam, which moves int8 rows as well
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for _ in range(NUM_EPOCHS):
        for rows in torch.randperm(len(ids)).split(BATCH):
            optimizer.zero_grad()
            binary_cross_entropy_with_logits(model(ids[rows]), labels[rows]).backward()
            optimizer.step()
    if compressed:
        cce.finalize(model)  # added: int8 rows become pointers and codebooks
        cce.save(model, "model.safetensors")  # added: cce.load("model.safetensors", into=DeepFM())
    return model


def score(model: nn.Module, ids: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        return binary_cross_entropy_with_logits(model(ids), labels).item()


def main() -> None:
    g = torch.Generator().manual_seed(0)
    world = SyntheticClicks(SIZES, num_clusters=8, generator=g)
    train, test = (world.sample(num_rows, generator=g) for num_rows in (60_000, 10_000))
    compare(train, test)


def compare(train: Sample, test: Sample) -> None:
    train_ids, test_ids = number_features(train.ids, test.ids)
    for name in ("full", "cce"):
        model = train_model(train_ids, train.labels, compressed=name == "cce")
        nbytes = cce.summary(model).total.nbytes
        print(f"{name:5} test BCE {score(model, test_ids, test.labels):.4f}  {nbytes:>9,} bytes")
    again = cce.load("model.safetensors", into=DeepFM())
    print(f"loaded: the same scores: {score(again, test_ids, test.labels) == score(model, test_ids, test.labels)}")


if __name__ == "__main__":
    main()
