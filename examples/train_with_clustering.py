"""The paper's algorithm on clicks with hidden clusters: hashing and clustering at one budget, and the oracle."""

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

import cce
from cce.data import Sample, SyntheticClicks

NUM_EPOCHS, BATCH = 4, 500


class Recommender(nn.Module):
    """A dot product of a user's and an item's vector."""

    def __init__(self, method: str, sizes: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__()
        self.tables = nn.ModuleList(
            cce.create_embedding(method, size, 16, num_params=960, generator=generator) for size in sizes
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        users, items = (table(column) for table, column in zip(self.tables, ids.unbind(1), strict=True))
        return (users * items).sum(-1)


def train(method: str, sizes: tuple[int, ...], clicks: Sample) -> Recommender:
    g = torch.Generator().manual_seed(0)
    model = Recommender(method, sizes, g)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    schedule = cce.reclustering.ClusterSchedule(
        model, optimizer, at_epochs=[1.0, 2.0, 3.0], steps_per_epoch=len(clicks.ids) // BATCH
    )
    for _ in range(NUM_EPOCHS):
        for rows in torch.randperm(len(clicks.ids), generator=g).split(BATCH):
            loss = binary_cross_entropy_with_logits(model(clicks.ids[rows]), clicks.labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()  # clusters when it is time, and repairs the optimizer; does nothing to hashed tables
    return model


def main() -> None:
    g = torch.Generator().manual_seed(0)
    world = SyntheticClicks((1_000, 300), num_clusters=8, generator=g)
    clicks, test = world.sample(24_000, generator=g), world.sample(8_000, generator=g)
    for method in ("hash", "cce-paper"):
        model = train(method, world.vocabulary_sizes, clicks)
        with torch.no_grad():
            bce = binary_cross_entropy_with_logits(model(test.ids), test.labels).item()
        print(f"{method:9} {cce.summary(model).total.num_params:,} params  BCE {bce:.4f}")
    print(f"oracle    {'':14}BCE {test.oracle_bce:.4f}")


if __name__ == "__main__":
    main()
