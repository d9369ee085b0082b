"""Compress a model in a loop of your own, and train a full table and a hashed one in the same loop beside it.

The rows are 327,346 flights (`cce.data.load_flights`). All three models start from small vectors.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce

import cce

Rows = tuple[Tensor, Tensor]


def make_model() -> nn.Module:
    """A table and a network. It knows nothing of this library."""
    layers = nn.Flatten(), nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 1), nn.Flatten(0)
    model = nn.Sequential(nn.Embedding(32_090, 16), *layers)
    nn.init.normal_(model[0].weight, std=0.01)
    return model


def fit(model: nn.Module, optimizer: torch.optim.Optimizer, rows: Rows) -> None:
    for ids, late in zip(*(column.split(1024) for column in rows), strict=True):
        optimizer.zero_grad()
        bce(model(ids), late).backward()
        optimizer.step()


@torch.no_grad()
def loss(model: nn.Module, rows: Rows) -> float:
    ids, late = rows
    return bce(model(ids), late).item()


def main() -> None:
    flights = cce.data.load_flights()

    torch.manual_seed(0)
    full = make_model()
    fit(full, torch.optim.Adam(full.parameters(), lr=3e-3), flights["train"])

    torch.manual_seed(0)
    small = make_model()
    cce.compress(small)  # added: the table becomes int8 rows
    fit(small, cce.optim.Adam(small, lr=3e-3), flights["train"])  # added: torch's Adam, which also updates int8 rows
    cce.finalize(small, validate=lambda: loss(small, flights["validation"]))  # added: pointers and a codebook
    cce.save(small, "model.safetensors")  # added: one file

    torch.manual_seed(0)
    hashed = make_model()
    cce.compress(hashed, method="hash", nbytes=cce.summary(small).total.nbytes)
    fit(hashed, torch.optim.Adam(hashed.parameters(), lr=3e-3), flights["train"])

    for name, model in (("full", full), ("cce", small), ("hash", hashed)):
        nbytes = cce.summary(model).total.nbytes
        print(f"{name:5} test BCE {loss(model, flights['test']):.4f}  {nbytes:>9,} bytes")
    again = cce.load("model.safetensors", into=make_model())
    print(f"loaded: the same scores: {loss(again, flights['test']) == loss(small, flights['test'])}")


if __name__ == "__main__":
    main()
