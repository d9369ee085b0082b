"""Replace one nn.Embedding of a small model by a compressed table, and train it as before."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import cce

NUM_WORDS, NUM_CLASSES = 20_000, 4


class Classifier(nn.Module):
    def __init__(self, words: nn.Module) -> None:
        super().__init__()
        self.words = words
        self.top = nn.Linear(32, NUM_CLASSES)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.top(self.words(ids).mean(dim=1))


def main() -> None:
    g = torch.Generator().manual_seed(0)
    words = cce.create_embedding("cce", NUM_WORDS, 32, generator=g)  # instead of nn.Embedding
    model = Classifier(words)
    optimizer = cce.optim.Adam(model, lr=0.01)

    ids = torch.randint(0, NUM_WORDS, (256, 12), generator=g)
    labels = ids[:, 0] % NUM_CLASSES
    losses = []
    for _ in range(30):
        loss = cross_entropy(model(ids), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    print(cce.finalize(model, seed=0))
    print(cce.summary(model))


if __name__ == "__main__":
    main()
